#include "lerobot/hub/lfs_upload.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>

#include "lerobot/base/error.h"
#include "lerobot/base/parallel_loop.h"
#include "lerobot/hub/lfs_upload_batch.h"
#include "lerobot/hub/upload_request.h"

namespace lerobot::hub {
namespace {

/// Objects in one question, and objects and parts of one object under way at a time.
constexpr std::size_t kBatch = 256;
constexpr int kObjectsAtOnce = 5;
constexpr int kPartsAtOnce = 4;

/// An address that the storage no longer honours: 403.
struct LinkExpired {};

/// Calls body(i) for all i on several threads; a failure of one for good stops what the others
/// send.
void for_each(UploadMeter& meter, const char* name, int threads, std::size_t count,
              const std::function<void(std::size_t)>& body) {
  ParallelLoop(name).run(threads, static_cast<std::int64_t>(count), [&](std::int64_t i) {
    meter.check();
    try {
      body(static_cast<std::size_t>(i));
    } catch (const LinkExpired&) {
      throw;
    } catch (...) {
      meter.stop(std::current_exception());
      throw;
    }
  });
}

class LfsUpload {
 public:
  LfsUpload(HubClient& client, const Repo& repo, const std::string& branch, UploadMeter& meter)
      : client_(client), repo_(repo), branch_(branch), meter_(meter) {}

  void run(std::span<const LfsObject> objects) {
    struct Pending {
      const LfsObject* object;
      LfsActions actions;
    };
    std::vector<Pending> pending;
    std::uint64_t bytes = 0;
    for (std::size_t at = 0; at < objects.size(); at += kBatch) {
      const auto part = objects.subspan(at, std::min(kBatch, objects.size() - at));
      auto actions = ask(part);
      for (const LfsObject& object : part) {
        if (!actions.at(object.sha256)) continue;
        bytes += object.content->size();
        pending.push_back({&object, std::move(*actions.at(object.sha256))});
      }
    }
    meter_.expect(pending.size(), bytes);
    for_each(meter_, "upload", kObjectsAtOnce, pending.size(), [&](std::size_t i) {
      send(*pending[i].object, std::move(pending[i].actions));
      meter_.add_file();
    });
  }

 private:
  std::map<std::string, std::optional<LfsActions>> ask(std::span<const LfsObject> objects) {
    return ask_lfs_batch(client_, repo_, branch_, objects);
  }

  void send(const LfsObject& object, LfsActions actions) {
    try {
      send_bytes(object, actions);
    } catch (const LinkExpired&) {  // it waited too long for its turn
      auto fresh = ask({&object, 1}).at(object.sha256);
      if (!fresh) return;
      actions = std::move(*fresh);
      try {
        send_bytes(object, actions);
      } catch (const LinkExpired&) {
        throw HubError(
            HubFault::kForbidden, 403,
            fmt::format("cannot upload {} to {}: the storage denies access (status 403) to the "
                        "address that the Hub has just given out; check this machine's clock and "
                        "proxies",
                        object.content->path(), describe(repo_)));
      }
    }
    object.content->check_unchanged();
    if (actions.verify) verify(object, *actions.verify);
  }

  void send_bytes(const LfsObject& object, const LfsActions& actions) {
    if (actions.upload.parts.empty())
      put(object, actions.upload.url, actions.upload.headers, 0, object.content->size());
    else
      send_parts(object, actions.upload);
  }

  void send_parts(const LfsObject& object, const LfsTarget& target) {
    std::vector<std::string> etags(target.parts.size());
    std::atomic<std::int64_t> sent = 0;
    try {
      for_each(meter_, "upload parts", kPartsAtOnce, target.parts.size(), [&](std::size_t i) {
        const std::uint64_t offset = i * target.part_size;
        const std::uint64_t size = std::min(target.part_size, object.content->size() - offset);
        const HttpAnswer answer = put(object, target.parts[i], {}, offset, size);
        sent += static_cast<std::int64_t>(size);
        const auto etag = answer.header("etag");
        if (!etag)
          fail_answer(subject(object, "upload"),
                      fmt::format("part {} of {} gets no ETag", i + 1, target.parts.size()));
        etags[i] = *etag;
      });
    } catch (const LinkExpired&) {
      meter_.add_bytes(-sent);  // new addresses are those of another upload
      throw;
    }
    complete(object, target, etags);
  }

  HttpAnswer put(const LfsObject& object, const std::string& url,
                 const std::vector<std::string>& headers, std::uint64_t offset,
                 std::uint64_t size) {
    const auto body = meter_.metered(object.content->body(offset, size));
    const UploadRequest request{
        .url = url, .headers = headers, .body = body.get(), .subject = subject(object, "upload")};
    UploadAnswer answer = send_upload(client_, request);
    if (answer.head.status < 400) return std::move(answer.head);
    body->rewind();  // what was sent doesn't count
    if (answer.head.status == 403) throw LinkExpired();
    fail_upload(request, answer);
  }

  void complete(const LfsObject& object, const LfsTarget& target,
                const std::vector<std::string>& etags) {
    Json parts = Json::array();
    for (std::size_t i = 0; i < etags.size(); ++i)
      parts.push_back({{"partNumber", i + 1}, {"etag", etags[i]}});
    const Json body = {{"oid", object.sha256}, {"parts", std::move(parts)}};
    try {
      client_.call({.method = "POST",
                    .url = target.url,
                    .body = body.dump(),
                    .content_type = kLfsContentType,
                    .headers = {std::string("Accept: ") + kLfsContentType},
                    .with_token = false},
                   subject(object, "put together the parts of"));
    } catch (const HubError& error) {
      // A repeat after a lost answer is refused although, or rather because, the object is there.
      const bool refused = error.status() >= 400 && error.status() < 500;
      if (!refused || ask({&object, 1}).at(object.sha256)) throw;
    }
  }

  void verify(const LfsObject& object, const LfsTarget& target) {
    const Json body = {{"oid", object.sha256}, {"size", object.content->size()}};
    client_.call({.method = "POST",
                  .url = target.url,
                  .body = body.dump(),
                  .content_type = kLfsContentType,
                  .headers = target.headers},
                 subject(object, "verify"));
  }

  Subject subject(const LfsObject& object, const std::string& verb) const {
    return {.repo = repo_, .action = fmt::format("{} {}", verb, object.content->path())};
  }

  HubClient& client_;
  const Repo& repo_;
  const std::string& branch_;
  UploadMeter& meter_;
};

}  // namespace

void upload_lfs(HubClient& client, const Repo& repo, const std::string& branch,
                std::span<const LfsObject> objects, UploadMeter& meter) {
  std::set<std::string> seen;
  std::vector<LfsObject> distinct;  // the same content may stand at several paths
  for (const LfsObject& object : objects)
    if (seen.insert(object.sha256).second) distinct.push_back(object);
  LfsUpload(client, repo, branch, meter).run(distinct);
}

}  // namespace lerobot::hub
