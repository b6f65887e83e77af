#include "lerobot/hub/hub_error.h"

#include <optional>
#include <utility>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/hub/retry_policy.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

constexpr std::size_t kLongestText = 500;

/// What the body says for people: {"error": "..."}, {"error": ["..."]}, {"errors": [{"message":
/// "..."}]}, {"error_description": "..."} or plain text. Pages are of no use.
std::vector<std::string> body_texts(const std::string& body) {
  std::vector<std::string> texts;
  const auto add = [&texts](const Json& value) {
    if (value.is_string()) texts.push_back(value.get<std::string>());
  };
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object()) {
    for (const char* name : {"error", "error_description", "message"}) {
      if (!json.contains(name)) continue;
      if (!json[name].is_array()) add(json[name]);
      if (json[name].is_array())
        for (const Json& item : json[name]) add(item);
    }
    if (json.contains("errors") && json["errors"].is_array())
      for (const Json& item : json["errors"])
        if (item.is_object() && item.contains("message")) add(item["message"]);
  } else if (!body.empty() && body.find('<') == std::string::npos) {
    texts.push_back(body);
  }
  return texts;
}

/// "status 404, Repository not found".
std::string server_words(const HttpAnswer& answer, const std::string& body) {
  std::vector<std::string> texts;
  if (const auto text = answer.header("x-error-message")) texts.push_back(*text);
  for (std::string& text : body_texts(body))
    if (texts.empty() || text != texts.front()) texts.push_back(std::move(text));
  std::string words = fmt::format("status {}", answer.status);
  if (const auto limit = rate_limit_words(answer)) words += ", " + *limit;
  for (const std::string& text : texts) words += ", " + printable_text(text, kLongestText);
  if (const auto id = answer.header("x-request-id"); id && answer.status >= 500)
    words += fmt::format(", request {}", printable_text(*id, kLongestText));
  return words;
}

/// "dataset OWNER/NAME", "dataset OWNER/NAME at v3.0", "meta/info.json of dataset OWNER/NAME at
/// v3.0".
std::string name_of(const Subject& subject) {
  std::string name = describe(subject.repo);
  if (!subject.path.empty()) name = subject.path + " of " + name;
  if (!subject.revision.empty()) name += " at " + subject.revision;
  return name;
}

/// Classification in the order of huggingface_hub: the code for programs wins.
HubFault fault_of(const Subject& subject, const HttpAnswer& answer) {
  const std::string code = answer.header("x-error-code").value_or("");
  if (code == "RevisionNotFound") return HubFault::kRevisionNotFound;
  if (code == "EntryNotFound") return HubFault::kEntryNotFound;
  if (code == "GatedRepo") return HubFault::kGated;
  if (answer.header("x-error-message") == "Access to this resource is disabled.")
    return HubFault::kDisabled;
  if (code == "RepoNotFound") return HubFault::kRepoNotFound;
  // An anonymous question for what is missing or private is answered so, too.
  if (answer.status == 401) return HubFault::kUnauthorized;
  if (answer.status == 403) return HubFault::kForbidden;
  // Mirrors and storages don't know the Hub's codes.
  if (answer.status == 404 && !subject.path.empty()) return HubFault::kEntryNotFound;
  if (answer.status == 409) return HubFault::kConflict;
  if (answer.status == 412) return HubFault::kStaleParent;
  if (is_retryable_status(answer.status)) return HubFault::kUnreachable;
  return HubFault::kRefused;
}

/// What was sent, and what to do about it.
std::string token_words(const Subject& subject, const HttpAnswer& answer,
                        const Credentials& credentials) {
  if (!credentials.token) return credentials.describe();
  if (answer.status == 401)
    return fmt::format(
        "the token from {} was sent and isn't valid: it may have been revoked or "
        "copied in part; make one at huggingface.co/settings/tokens",
        credentials.origin);
  return fmt::format("the token from {} was sent; check that it, and its user, may {} it",
                     credentials.origin, subject.action.empty() ? "read" : "write to");
}

/// The sentence about `subject` that a fault is.
std::string sentence(HubFault fault, const Subject& subject, const HttpAnswer& answer,
                     const std::string& words, const std::string& token,
                     const std::string& endpoint) {
  const std::string name = name_of(subject);
  const std::string repo = describe(subject.repo);
  switch (fault) {
    case HubFault::kRevisionNotFound:
      return fmt::format("{} has no revision \"{}\" ({}); its branches and tags are listed at {}",
                         repo, subject.revision, words, page_url(endpoint, subject.repo) + "/refs");
    case HubFault::kEntryNotFound:
      return fmt::format("there is no {} ({}); check the name", name, words);
    case HubFault::kGated:
      return fmt::format(
          "{} is gated, and its terms aren't accepted by the user of the token ({}); ask for "
          "access "
          "at {}; {}",
          name, words, page_url(endpoint, subject.repo), token);
    case HubFault::kDisabled:
      return fmt::format("access to {} has been disabled ({})", name, words);
    case HubFault::kRepoNotFound:
      return fmt::format(
          "{} is not on {}, or is private and not for this token ({}); check the "
          "spelling; {}",
          repo, endpoint, words, token);
    case HubFault::kUnauthorized:
      if (words.find("Invalid credentials") != std::string::npos)
        return fmt::format("{} is not shown ({}): {}", name, words, token);
      return fmt::format("{} is missing on {}, or is private or gated ({}); check the spelling; {}",
                         name, endpoint, words, token);
    case HubFault::kForbidden:
      return fmt::format("{} denies access to {} ({}); {}", endpoint, name, words, token);
    default:
      break;
  }
  if (answer.status == 404)
    return fmt::format("{}: {} knows no such address ({}); does HF_ENDPOINT name a Hub?", name,
                       endpoint, words);
  return fmt::format("{}: {} refuses ({})", name, endpoint, words);
}

std::string task_of(const Subject& subject) {
  return subject.action.empty() ? "" : fmt::format("cannot {}: ", subject.action);
}

}  // namespace

void fail_hub(const Subject& subject, const HttpAnswer& answer, const std::string& body,
              const std::string& endpoint, const Credentials& credentials) {
  const HubFault fault = fault_of(subject, answer);
  const std::string token = token_words(subject, answer, credentials);
  throw HubError(fault, answer.status,
                 task_of(subject) +
                     sentence(fault, subject, answer, server_words(answer, body), token, endpoint));
}

void fail_offline(const Subject& subject) {
  throw HubError(HubFault::kOffline, 0,
                 fmt::format("{}{} is not asked for: offline mode is on; unset HF_HUB_OFFLINE (or "
                             "TRANSFORMERS_OFFLINE)",
                             task_of(subject), name_of(subject)));
}

void fail_unreachable(const Subject& subject, const std::string& reason, long status) {
  throw HubError(HubFault::kUnreachable, status,
                 fmt::format("{}{}: {}", task_of(subject), describe(subject.repo), reason));
}

void fail_answer(const Subject& subject, const std::string& what) {
  throw HubError(
      HubFault::kMisbehaved, 0,
      fmt::format("{}{}: the server gives an answer that no Hub gives: {}; does HF_ENDPOINT name a "
                  "Hub, and no proxy change what it says?",
                  task_of(subject), name_of(subject), what));
}

}  // namespace lerobot::hub
