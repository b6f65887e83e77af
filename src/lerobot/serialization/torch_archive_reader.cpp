#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/serialization/torch_archive.h"
#include "lerobot/serialization/torch_storage.h"

namespace lerobot::serialization {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

constexpr std::string_view kUntypedStorage = "UntypedStorage";

/// Globals that torch.load(weights_only=True) needs for tensors, and we with it.
const std::vector<std::string_view>& allowed_globals() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result = {
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_parameter_with_state",
        "torch.Size",
        "torch.device",
        "torch.storage.UntypedStorage",
    };
    for (const TorchType& type : kTorchTypes) {
      result.push_back(fmt::format("torch.{}", type.dtype));
      if (!type.storage.empty()) result.push_back(fmt::format("torch.{}", type.storage));
    }
    return result;
  }();
  static const std::vector<std::string_view> views(names.begin(), names.end());
  return views;
}

/// The persistent id of a storage: ("storage", class, key, device, number of elements).
struct StorageReference {
  std::optional<c10::ScalarType> type;  // nothing: untyped, counted in bytes
  std::string key;
  std::uint64_t bytes = 0;

  std::uint64_t element_bytes() const { return type ? c10::elementSize(*type) : 1; }
};

StorageReference storage_reference(const PickleValue& value, const std::string& file) {
  const auto* reference = value.get<PicklePersistentId>();
  const auto* tuple = reference ? reference->id->get<PickleTuple>() : nullptr;
  if (!tuple || tuple->items.size() < 5)
    fail("{}: a tensor's storage is {}, expected a reference to one", file, value.describe());
  const auto* kind = tuple->items[0]->get<std::string>();
  const auto* storage_class = tuple->items[1]->get<PickleGlobal>();
  const auto* key = tuple->items[2]->get<std::string>();
  const auto* count = tuple->items[4]->get<std::int64_t>();
  if (!kind || *kind != "storage" || !storage_class || !key || !count)
    fail("{}: a tensor's storage is not described as torch does it", file);
  if (tuple->items.size() > 6 || (tuple->items.size() == 6 && !tuple->items[5]->is_none()))
    fail(
        "{}: storage {} is a view of another one, as only very old torch wrote; save the file "
        "again with a newer torch",
        file, *key);
  StorageReference result;
  result.key = *key;
  if (storage_class->name != kUntypedStorage) {
    const auto type = std::ranges::find(kTorchTypes, storage_class->name, &TorchType::storage);
    if (type == std::end(kTorchTypes) || storage_class->module != "torch")
      fail("{}: storage {} has the unknown class {}", file, *key, storage_class->qualified());
    result.type = type->type;
  }
  const std::string what = fmt::format("{}: size of storage {}", file, *key);
  result.bytes =
      checked_mul(checked_cast<std::uint64_t>(*count, what), result.element_bytes(), what);
  return result;
}

std::vector<std::int64_t> numbers(const PickleValue& value, const std::string& file,
                                  std::string_view what) {
  const PickleTuple* tuple = value.get<PickleTuple>();
  // torch.Size is a call with the tuple as its argument.
  if (const auto* object = value.get<PickleObject>();
      object && object->is("torch", "Size") && object->arguments.size() == 1)
    tuple = object->arguments[0]->get<PickleTuple>();
  if (!tuple) fail("{}: a tensor's {} is {}, expected a tuple", file, what, value.describe());
  std::vector<std::int64_t> result;
  for (const PickleValue* item : tuple->items) {
    const auto* number = item->get<std::int64_t>();
    if (!number || *number < 0)
      fail("{}: a tensor's {} holds {}, expected non-negative ints", file, what,
           number ? fmt::format("{}", *number) : item->describe());
    result.push_back(*number);
  }
  return result;
}

/// Where a tensor's elements lie in its storage.
struct Layout {
  c10::ScalarType type = c10::ScalarType::Float;
  std::uint64_t offset = 0;  // in elements
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::uint64_t count = 0;  // of elements
  std::uint64_t span = 0;   // elements from the first to behind the last in the storage
  bool contiguous = true;
};

void measure(Layout& layout, std::uint64_t storage_bytes, const std::string& file,
             const std::string& key) {
  constexpr std::size_t kMaxDimensions = 64;
  const std::string what = fmt::format("{}: size of a tensor in storage {}", file, key);
  if (layout.sizes.size() != layout.strides.size() || layout.sizes.size() > kMaxDimensions)
    fail("{}: a tensor in storage {} has {} sizes and {} strides", file, key, layout.sizes.size(),
         layout.strides.size());
  layout.count = 1;
  layout.span = 1;
  for (std::size_t i = layout.sizes.size(); i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(layout.sizes[i]);
    const auto stride = static_cast<std::uint64_t>(layout.strides[i]);
    if (size > 1) {
      if (stride != layout.count) layout.contiguous = false;
      layout.span = checked_add(layout.span, checked_mul(size - 1, stride, what), what);
    }
    layout.count = checked_mul(layout.count, size, what);
  }
  if (layout.count == 0) {
    layout.span = 0;
    return;
  }
  const std::uint64_t element_bytes = c10::elementSize(layout.type);
  const std::uint64_t end =
      checked_mul(checked_add(layout.offset, layout.span, what), element_bytes, what);
  if (end > storage_bytes)
    fail("{}: a tensor reaches to byte {} of storage {}, which has {}", file, end, key,
         storage_bytes);
  // A stride of zero repeats elements: a few bytes must not ask for the whole memory.
  constexpr std::uint64_t kMaxRepeated = 1 << 24;
  if (layout.count > layout.span && layout.count > kMaxRepeated)
    fail("{}: a tensor of {} elements repeats {} of storage {}", file, layout.count, layout.span,
         key);
}

/// Copies elements in order of `sizes` from a strided place.
void copy_strided(const Layout& layout, const std::uint8_t* source, std::uint8_t* target) {
  const std::size_t element_bytes = c10::elementSize(layout.type);
  std::vector<std::int64_t> index(layout.sizes.size(), 0);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < layout.count; ++i) {
    std::memcpy(target + i * element_bytes, source + at * element_bytes, element_bytes);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += static_cast<std::uint64_t>(layout.strides[d]);
      if (++index[d] < layout.sizes[d]) break;
      at -= static_cast<std::uint64_t>(layout.strides[d]) *
            static_cast<std::uint64_t>(layout.sizes[d]);
      index[d] = 0;
    }
  }
}

}  // namespace

struct TorchArchive::Contents {
  std::string name;
  MappedFile file;
  Unpickled pickle;
  // Zip form.
  std::optional<ZipReader> zip;
  std::string root_folder;
  // Legacy form.
  std::map<std::string, std::span<const std::uint8_t>, std::less<>> storages;

  void open(std::span<const std::uint8_t> bytes);
  void open_zip(std::span<const std::uint8_t> bytes);
  void open_legacy(std::span<const std::uint8_t> bytes);
  void read_legacy_storages(std::span<const std::uint8_t> bytes, const PickleValue& keys);
  std::string_view small_member(std::string_view member) const;
  std::span<const std::uint8_t> storage(const StorageReference& reference) const;
  enum class Access { kCopy, kViewIfPossible };
  at::Tensor tensor(const PickleValue& value, Access access) const;
};

void TorchArchive::Contents::open(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kLfs = "version https://git-lfs.github.com/spec/";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(kLfs))
    fail("{}: is a Git LFS pointer, not the file itself; run `git lfs pull` there", name);
  if (ZipReader::looks_like_zip(bytes)) {
    open_zip(bytes);
  } else if (!bytes.empty() && bytes[0] == 0x80) {
    open_legacy(bytes);
  } else if (text.size() > 262 && text.substr(257, 5) == "ustar") {
    fail("{}: is a tar archive of torch before 0.1.10; save it again with a newer torch", name);
  } else {
    fail("{}: is no file of torch.save: neither a zip archive nor a pickle", name);
  }
}

void TorchArchive::Contents::open_zip(std::span<const std::uint8_t> bytes) {
  zip.emplace(bytes, name);
  constexpr std::string_view kPickle = "/data.pkl";
  const ZipReader::Member* pickle_member = nullptr;
  for (const ZipReader::Member& member : zip->members()) {
    if (!member.name.ends_with(kPickle)) continue;
    if (pickle_member) fail("{}: holds both {} and {}", name, pickle_member->name, member.name);
    pickle_member = &member;
  }
  if (!pickle_member) fail("{}: is no file of torch.save: it lacks data.pkl", name);
  root_folder = pickle_member->name.substr(0, pickle_member->name.size() - kPickle.size() + 1);
  if (zip->find(root_folder + "constants.pkl"))
    fail("{}: is a TorchScript program, not a file of tensors", name);
  if (const auto order = small_member("byteorder"); !order.empty() && order != "little")
    fail("{}: was written on a machine of byte order {}, only little is supported", name, order);
  pickle = unpickle(zip->checked_bytes(*pickle_member), name, allowed_globals());
  if (pickle.bytes != pickle_member->bytes.size())
    fail("{}: {} bytes behind the end of {}", name, pickle_member->bytes.size() - pickle.bytes,
         pickle_member->name);
}

std::string_view TorchArchive::Contents::small_member(std::string_view member) const {
  const auto* found = zip->find(root_folder + std::string(member));
  if (!found) return {};
  return {reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size()};
}

void TorchArchive::Contents::open_legacy(std::span<const std::uint8_t> bytes) {
  // Five pickles in a row: magic number, protocol version, the writer's machine, what was saved,
  // the keys of the storages. Then each storage: its number of elements in eight bytes, its bytes.
  constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
  constexpr std::int64_t kProtocolVersion = 1001;
  const auto next = [&](std::span<const std::string_view> allowed) {
    Unpickled result = unpickle(bytes, name, allowed);
    bytes = bytes.subspan(result.bytes);
    return result;
  };
  const Unpickled magic = next({});
  const auto* number = magic.root->get<PickleBigInteger>();
  if (!number || number->little_endian != kMagic)
    fail("{}: is a pickle, but not one of torch.save", name);
  const Unpickled version = next({});
  const auto* version_number = version.root->get<std::int64_t>();
  if (!version_number || *version_number != kProtocolVersion)
    fail("{}: is a file of torch.save of an unknown version, expected {}", name, kProtocolVersion);
  const Unpickled machine = next({});
  const auto* machine_items = machine.root->get<PickleDict>();
  const PickleValue* little = machine_items ? machine_items->find("little_endian") : nullptr;
  if (!little || !little->get<bool>() || !*little->get<bool>())
    fail("{}: was not written on a little-endian machine", name);
  pickle = next(allowed_globals());
  const Unpickled keys = next({});
  read_legacy_storages(bytes, *keys.root);
}

void TorchArchive::Contents::read_legacy_storages(std::span<const std::uint8_t> bytes,
                                                  const PickleValue& keys) {
  std::map<std::string, StorageReference> references;
  for (const PickleValue& value : pickle.values) {
    if (!value.get<PicklePersistentId>()) continue;
    StorageReference reference = storage_reference(value, name);
    const auto [known, added] = references.emplace(reference.key, reference);
    if (!added && known->second.bytes != reference.bytes)
      fail("{}: storage {} is described with {} and with {} bytes", name, reference.key,
           known->second.bytes, reference.bytes);
  }
  const auto* list = keys.get<PickleList>();
  if (!list) fail("{}: the list of storages is {}", name, keys.describe());
  for (const PickleValue* item : list->items) {
    const auto* key = item->get<std::string>();
    const auto reference = key ? references.find(*key) : references.end();
    if (reference == references.end())
      fail("{}: its list of storages names one that no tensor uses", name);
    std::uint64_t count = 0;
    if (bytes.size() < sizeof count) fail("{}: is cut off before storage {}", name, *key);
    std::memcpy(&count, bytes.data(), sizeof count);
    bytes = bytes.subspan(sizeof count);
    const std::uint64_t size = reference->second.bytes;
    if (count != size / reference->second.element_bytes())
      fail("{}: storage {} has {} elements, expected {}", name, *key, count,
           size / reference->second.element_bytes());
    if (size > bytes.size())
      fail("{}: is cut off: storage {} has {} bytes, {} are left", name, *key, size, bytes.size());
    if (!storages.emplace(*key, bytes.first(size)).second)
      fail("{}: storage {} occurs twice", name, *key);
    bytes = bytes.subspan(size);
  }
  if (!bytes.empty()) fail("{}: {} bytes behind the last storage", name, bytes.size());
}

std::span<const std::uint8_t> TorchArchive::Contents::storage(
    const StorageReference& reference) const {
  if (!zip) {
    const auto found = storages.find(reference.key);
    if (found == storages.end()) fail("{}: storage {} is missing", name, reference.key);
    return found->second;
  }
  const auto* member = zip->find(root_folder + "data/" + reference.key);
  if (!member) fail("{}: storage {} is missing", name, reference.key);
  if (member->bytes.size() != reference.bytes)
    fail("{}: storage {} has {} bytes, expected {}", name, reference.key, member->bytes.size(),
         reference.bytes);
  return zip->checked_bytes(*member);
}

at::Tensor TorchArchive::Contents::tensor(const PickleValue& value, Access access) const {
  const auto* object = value.get<PickleObject>();
  if (!TorchArchive::is_tensor(value))
    fail("{}: expected a tensor, found {}", name, value.describe());
  const auto& arguments = object->arguments;
  if (object->callable->name.starts_with("_rebuild_parameter")) {
    if (arguments.empty() || !TorchArchive::is_tensor(*arguments[0]))
      fail("{}: a parameter is not made of a tensor", name);
    return tensor(*arguments[0], access);
  }
  const bool with_dtype = object->callable->name == "_rebuild_tensor_v3";
  if (arguments.size() < (with_dtype ? 7U : 4U))
    fail("{}: {} has {} arguments", name, value.describe(), arguments.size());

  const StorageReference reference = storage_reference(*arguments[0], name);
  Layout layout;
  if (with_dtype) {
    const auto* dtype = arguments[6]->get<PickleGlobal>();
    const auto type = std::ranges::find(kTorchTypes, dtype ? dtype->name : "", &TorchType::dtype);
    if (type == std::end(kTorchTypes))
      fail("{}: a tensor has the dtype {}", name, arguments[6]->describe());
    layout.type = type->type;
  } else if (reference.type) {
    layout.type = *reference.type;
  } else {
    fail("{}: storage {} is untyped, but its tensor names no dtype", name, reference.key);
  }
  const auto* offset = arguments[1]->get<std::int64_t>();
  if (!offset || *offset < 0) fail("{}: a tensor's offset is {}", name, arguments[1]->describe());
  layout.offset = static_cast<std::uint64_t>(*offset);
  layout.sizes = numbers(*arguments[2], name, "size");
  layout.strides = numbers(*arguments[3], name, "stride");
  measure(layout, reference.bytes, name, reference.key);

  const auto bytes = storage(reference);
  const std::size_t element_bytes = c10::elementSize(layout.type);
  if (layout.count == 0) return at::empty(layout.sizes, at::TensorOptions(layout.type));
  const auto source = bytes.subspan(layout.offset * element_bytes, layout.span * element_bytes);
  if (layout.type == at::kBool && std::ranges::any_of(source, [](auto b) { return b > 1; }))
    fail("{}: storage {} of bools holds a byte that is neither 0 nor 1", name, reference.key);
  if (access == Access::kViewIfPossible && layout.contiguous &&
      reinterpret_cast<std::uintptr_t>(source.data()) % element_bytes == 0)
    return at::from_blob(const_cast<std::uint8_t*>(source.data()), layout.sizes,
                         at::TensorOptions(layout.type));
  at::Tensor result = at::empty(layout.sizes, at::TensorOptions(layout.type));
  if (layout.contiguous) {
    std::memcpy(result.mutable_data_ptr(), source.data(), source.size());
  } else {
    copy_strided(layout, source.data(), static_cast<std::uint8_t*>(result.mutable_data_ptr()));
  }
  return result;
}

TorchArchive::TorchArchive(const std::filesystem::path& path) {
  auto contents = std::make_unique<Contents>();
  contents->name = path.string();
  contents->file = MappedFile(path);
  contents->open(contents->file.bytes());
  contents_ = std::move(contents);
}

TorchArchive::TorchArchive(std::span<const std::uint8_t> bytes, std::string name) {
  auto contents = std::make_unique<Contents>();
  contents->name = std::move(name);
  contents->open(bytes);
  contents_ = std::move(contents);
}

TorchArchive::~TorchArchive() = default;
TorchArchive::TorchArchive(TorchArchive&&) noexcept = default;

const PickleValue& TorchArchive::root() const { return *contents_->pickle.root; }

bool TorchArchive::is_tensor(const PickleValue& value) {
  const auto* object = value.get<PickleObject>();
  return object && object->callable->module == "torch._utils" &&
         object->callable->name.starts_with("_rebuild_");
}

at::Tensor TorchArchive::tensor(const PickleValue& value) const {
  return contents_->tensor(value, Contents::Access::kCopy);
}

at::Tensor TorchArchive::view(const PickleValue& value) const {
  return contents_->tensor(value, Contents::Access::kViewIfPossible);
}

NamedTensors read_state_dict(const std::filesystem::path& path) {
  {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    // A safetensors header begins behind its length; the other two forms cannot look like that.
    constexpr std::size_t kLengthBytes = 8;
    if (bytes.size() > kLengthBytes && bytes[kLengthBytes] == '{' &&
        !ZipReader::looks_like_zip(bytes))
      return SafetensorsFile(path).all();
  }
  const TorchArchive archive(path);
  const auto* dict = archive.root().get<PickleDict>();
  if (!dict)
    fail("{}: holds {}, expected a state dictionary", path.string(), archive.root().describe());
  NamedTensors tensors;
  std::set<std::string_view> names;
  for (const auto& [key, value] : dict->items) {
    const auto* name = key->get<std::string>();
    if (!name || !TorchArchive::is_tensor(*value))
      fail("{}: is no state dictionary: {} is {}, expected a tensor", path.string(),
           name ? *name : key->describe(), value->describe());
    if (!names.insert(*name).second) fail("{}: the key {} occurs twice", path.string(), *name);
    tensors.emplace_back(*name, archive.tensor(*value));
  }
  return tensors;
}

}  // namespace lerobot::serialization
