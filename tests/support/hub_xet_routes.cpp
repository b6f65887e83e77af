// Xet: the Hub's tokens for it, and its own server (https://huggingface.co/docs/xet/api).
#include <charconv>
#include <cstdio>
#include <ctime>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

constexpr std::time_t kTokenSeconds = 3600;

/// Refuses a request whose token the Hub did not give out for this.
void check_token(const HubState& state, const Request& request, bool for_writing) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string header = request.header("authorization");
  const std::string token = header.starts_with(kBearer) ? header.substr(kBearer.size()) : "";
  const bool may_write = state.xet_write_tokens.contains(token);
  if (may_write || (!for_writing && state.xet_read_tokens.contains(token))) return;
  if (state.xet_read_tokens.contains(token)) refuse(403, "", "The token is for reading");
  refuse(401, "", "The token is not one of Xet storage");
}

/// Chunk ranges of one xorb that the terms need, those that touch joined.
std::vector<XetTerm> joined_ranges(std::vector<XetTerm> terms) {
  std::sort(terms.begin(), terms.end(), [](const XetTerm& a, const XetTerm& b) {
    return a.xorb != b.xorb ? a.xorb < b.xorb : a.first < b.first;
  });
  std::vector<XetTerm> joined;
  for (const XetTerm& term : terms) {
    if (!joined.empty() && joined.back().xorb == term.xorb && term.first <= joined.back().last)
      joined.back().last = std::max(joined.back().last, term.last);
    else
      joined.push_back(term);
  }
  return joined;
}

Json chunk_range(const XetTerm& term) { return {{"start", term.first}, {"end", term.last}}; }

/// Of a range of chunks in the serialised xorb; the end is inclusive.
Json byte_range(const HubState& state, const XetTerm& range) {
  const Xorb& xorb = *state.xet.xorb(range.xorb);
  return {{"start", xorb.chunks[range.first].begin}, {"end", xorb.chunks[range.last - 1].end - 1}};
}

Json term_list(const std::vector<XetTerm>& terms) {
  Json list = Json::array();
  for (const XetTerm& term : terms)
    list.push_back(
        {{"hash", term.xorb}, {"unpacked_length", term.unpacked}, {"range", chunk_range(term)}});
  return list;
}

Answer reconstruction_answer(const HubState& state, const XetReconstruction& wanted, int version) {
  Json sources = Json::object();
  for (const XetTerm& range : joined_ranges(wanted.terms)) {
    const std::string url = state.signed_url("/xorbs/" + range.xorb);
    if (version == 1)
      sources[range.xorb].push_back(
          {{"range", chunk_range(range)}, {"url", url}, {"url_range", byte_range(state, range)}});
    else
      sources[range.xorb].push_back(
          {{"url", url},
           {"ranges",
            Json::array({{{"chunks", chunk_range(range)}, {"bytes", byte_range(state, range)}}})}});
  }
  return json_answer({{"offset_into_first_range", wanted.offset_into_first},
                      {"terms", term_list(wanted.terms)},
                      {version == 1 ? "fetch_info" : "xorbs", sources}});
}

Answer reconstruct(const HubState& state, const Request& request, const std::string& hash,
                   int version) {
  check_token(state, request, false);
  const XetFile* file = state.xet.file(hash);
  if (!file) refuse(404, "", "File not found");
  const std::uint64_t size = file->content.size();
  unsigned long long first = 0;
  unsigned long long last = size - 1;
  std::sscanf(request.header("range").c_str(), "bytes=%llu-%llu", &first, &last);
  if (first >= size || first > last) refuse(416, "", "Range not satisfiable");
  const std::uint64_t end = std::min<std::uint64_t>(last, size - 1) + 1;
  return reconstruction_answer(state, state.xet.reconstruct(*file, first, end), version);
}

Answer take_xorb(HubState& state, const Request& request, const std::string& hash) {
  check_token(state, request, true);
  return json_answer({{"was_inserted", state.xet.add_xorb(hash, request.content)}});
}

Answer take_shard(HubState& state, const Request& request) {
  check_token(state, request, true);
  state.xet.add_shard(request.content);
  return json_answer({{"result", 1}});
}

Answer answer_checked(HubState& state, const Request& request) {
  const std::string route = request.method + " " + request.path;
  const auto behind = [&](std::string_view beginning) -> std::optional<std::string> {
    if (!route.starts_with(beginning)) return std::nullopt;
    return route.substr(beginning.size());
  };
  if (const auto hash = behind("POST /v1/xorbs/default/")) return take_xorb(state, request, *hash);
  if (route == "POST /v1/shards") return take_shard(state, request);
  for (const int version : {1, 2})
    if (const auto hash = behind(fmt::format("GET /v{}/reconstructions/", version)))
      return reconstruct(state, request, *hash, version);
  // Among them: chunks of others, grants, and shards of version 2, which clients can do without.
  return plain_answer(404);
}

}  // namespace

Answer answer_xet_token(HubState& state, const RepoCall& call) {
  const bool for_writing = call.action == "xet-write-token";
  if (call.repo.type == hub::RepoType::kBucket) {
    for_writing ? own_bucket(state, call) : seen_bucket(state, call);
  } else {
    Repository& repository =
        for_writing ? own_repository(state, call) : seen_repository(state, call);
    seen_commit(repository, call.rest.empty() ? "main" : call.path(0));
    if (!for_writing) check_gate(repository, call);
  }
  const std::string token =
      fmt::format("xet_{}_{}", for_writing ? "write" : "read", ++state.counter);
  (for_writing ? state.xet_write_tokens : state.xet_read_tokens).insert(token);
  const std::time_t until = std::time(nullptr) + kTokenSeconds;
  Answer answer = json_answer({{"accessToken", token}, {"exp", until}, {"casUrl", state.xet_url}});
  answer.headers.emplace_back("X-Xet-Cas-Url", state.xet_url);
  answer.headers.emplace_back("X-Xet-Access-Token", token);
  answer.headers.emplace_back("X-Xet-Token-Expiration", std::to_string(until));
  return answer;
}

Answer answer_xet(HubState& state, const Request& request) {
  try {
    return answer_checked(state, request);
  } catch (const Refusal& refusal) {
    return refusal.answer();
  } catch (const Error& error) {
    return json_answer({{"error", error.what()}}, 400);
  }
}

}  // namespace lerobot::test_server
