#include "tests/support/hub_state.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "lerobot/hub/url.h"

namespace lerobot::test_server {
namespace {

constexpr std::string_view kBearer = "Bearer ";
/// What .gitattributes of a new repository says, in short.
constexpr std::array kLargeEndings = {".safetensors", ".parquet", ".mp4", ".npz",   ".npy",
                                      ".bin",         ".pt",      ".zip", ".arrow", ".tar"};

std::uint64_t now_ms() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

std::string signature(const std::string& path, const std::string& expires) {
  return sha256_of(fmt::format("secret of the storage\n{}\n{}", path, expires));
}

std::string owner_of(const std::string& id) {
  const std::size_t slash = id.find('/');
  return slash == std::string::npos ? std::string() : id.substr(0, slash);
}

}  // namespace

bool HubState::is_large(const std::string& path, std::uint64_t size) const {
  if (size == 0) return false;
  return size >= large_from ||
         std::any_of(kLargeEndings.begin(), kLargeEndings.end(),
                     [&](const char* ending) { return path.ends_with(ending); });
}

std::shared_ptr<const RepoFile> HubState::add_file(const std::string& path, const Bytes& content) {
  if (!is_large(path, content.size()))
    return std::make_shared<const RepoFile>(RepoFile::regular(content));
  const std::string sha256 = sha256_of(content);
  large.emplace(sha256, content);
  if (everything_in_xet) xet.add_content(content, sha256);
  return uploaded_file(sha256);
}

std::shared_ptr<const RepoFile> HubState::uploaded_file(const std::string& sha256) const {
  const std::string xet_hash = xet.hash_of(sha256);
  if (!xet_hash.empty())
    return std::make_shared<const RepoFile>(
        RepoFile::large(xet.file(xet_hash)->content, sha256, xet_hash));
  const auto at = large.find(sha256);
  if (at == large.end()) return nullptr;
  return std::make_shared<const RepoFile>(RepoFile::large(at->second, sha256));
}

void HubState::put_object(Bucket& bucket, const std::string& path, const Bytes& content) {
  const std::string now = iso_time(std::time(nullptr));
  bucket.objects[path] = {content, xet.add_content(content, sha256_of(content)), now_ms(), now};
  bucket.updated_at = now;
}

std::string HubState::signed_url(const std::string& path) const {
  constexpr std::uint64_t kYear = 365ull * 24 * 3600 * 1000;
  const std::string expires = std::to_string(
      now_ms() + (link_lifetime ? static_cast<std::uint64_t>(link_lifetime->count()) : kYear));
  return fmt::format("{}{}?Expires={}&Signature={}", storage_url, path, expires,
                     signature(path, expires));
}

void HubState::check_signature(const Request& request) const {
  const std::string expires = form_field(request.query, "Expires");
  if (form_field(request.query, "Signature") != signature(request.path, expires))
    throw Refusal(
        {403, {{"Content-Type", "application/xml"}}, "<Code>SignatureDoesNotMatch</Code>"});
  std::uint64_t until = 0;
  std::from_chars(expires.data(), expires.data() + expires.size(), until);
  if (now_ms() > until)
    throw Refusal({403,
                   {{"Content-Type", "application/xml"}},
                   "<Code>AccessDenied</Code><Message>Request has expired</Message>"});
}

Caller::Caller(const HubState& state, const Request& request) : open_(state.accounts.empty()) {
  const std::string header = request.header("authorization");
  has_token_ = header.starts_with(kBearer);
  if (open_) {
    user_ = "tester";
    return;
  }
  if (!has_token_) return;
  const std::string token = header.substr(kBearer.size());
  for (const HubAccount& account : state.accounts)
    if (account.token == token) account_ = &account;
  if (!account_) refuse(401, "", "Invalid credentials in Authorization header");
  user_ = account_->user;
}

bool Caller::owns(const std::string& id) const {
  if (open_) return true;
  if (!account_) return false;
  const std::string owner = owner_of(id);
  return owner == account_->user ||
         std::find(account_->organizations.begin(), account_->organizations.end(), owner) !=
             account_->organizations.end();
}

bool Caller::may_see(const std::string& id, bool is_private) const {
  return !is_private || owns(id);
}

void Caller::check_write(const std::string& id) const {
  if (open_) return;
  if (is_anonymous()) refuse(401, "", "Invalid username or password.");
  if (!owns(id))
    refuse(403, "", fmt::format("Forbidden: you do not have write access to {} as {}", id, user_));
  if (!account_->may_write)
    refuse(403, "", "Forbidden: your token has no write permission (its role is \"read\")");
}

}  // namespace lerobot::test_server
