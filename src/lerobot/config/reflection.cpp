#include "lerobot/config/reflection.h"

#include <algorithm>

#include <fmt/format.h>

namespace lerobot::config {
namespace {

std::string policy_names(const PolicyTypes& policies) {
  std::vector<std::string_view> names;
  for (const PolicyType& type : policies) names.push_back(type.name);
  return Limits{.choices = names}.text();
}

}  // namespace

// --- Single values ---

void report_limit(std::vector<Problem>& problems, const std::string& name, const Json& value,
                  const std::string& expected) {
  problems.push_back(
      {name,
       fmt::format("--{}={}: expected {}", name,
                   value.is_string() ? value.get<std::string>() : short_json(value), expected)});
}

void Codec<bool>::read(Reader& reader, const Json& json, bool& value) {
  if (json.is_boolean()) {
    value = json.get<bool>();
  } else if (json.is_number_integer() && (json == 0 || json == 1)) {
    value = json == 1;
  } else {
    return reader.expected(expects(), json);
  }
  reader.mark_seen();
}

void Codec<std::int64_t>::read(Reader& reader, const Json& json, std::int64_t& value) {
  const bool too_large =
      json.is_number_unsigned() && !std::in_range<std::int64_t>(json.get<std::uint64_t>());
  if (!json.is_number_integer() || too_large) return reader.expected(expects(), json);
  value = json.get<std::int64_t>();
  reader.mark_seen();
}

void Codec<std::int64_t>::check(std::vector<Problem>& problems, const std::string& name,
                                std::int64_t value, const Limits& limits) {
  if (!limits.allows(static_cast<double>(value)))
    report_limit(problems, name, value, expects() + " " + limits.text());
}

void Codec<double>::read(Reader& reader, const Json& json, double& value) {
  if (!json.is_number()) return reader.expected(expects(), json);
  value = json.get<double>();
  reader.mark_seen();
}

void Codec<double>::check(std::vector<Problem>& problems, const std::string& name, double value,
                          const Limits& limits) {
  if (std::isfinite(value) && limits.allows(value)) return;
  std::string expected = std::isfinite(value) ? expects() : "a finite number";
  if (const std::string text = limits.text(); !text.empty()) expected += " " + text;
  report_limit(problems, name, value, expected);
}

void Codec<std::string>::read(Reader& reader, const Json& json, std::string& value) {
  const std::string* text = reader.text();
  if (text != nullptr && !json.is_null()) {
    // "'quoted'" is YAML for quoted; anything else is meant literally, be it 010, true or a: b.
    const char first = text->empty() ? ' ' : text->front();
    const bool collection = json.is_structured() && (first == '[' || first == '{');
    if (collection) return reader.expected("text; quote it twice to mean it literally", json);
    value = json.is_string() ? json.get<std::string>() : *text;
  } else if (json.is_string()) {
    value = json.get<std::string>();
  } else if (reader.plain_scalars && json.is_number()) {
    value = to_python_json(json, -1);
  } else {
    return reader.expected(expects(), json);
  }
  reader.mark_seen();
}

void Codec<std::string>::check(std::vector<Problem>& problems, const std::string& name,
                               const std::string& value, const Limits& limits) {
  if (!limits.allows(value)) report_limit(problems, name, value, limits.text());
}

void Codec<Json>::read(Reader& reader, const Json& json, Json& value) {
  if (reader.merge_maps && json.is_object() && value.is_object()) {
    value.update(json, true);
  } else {
    value = json;
  }
  reader.mark_seen();
}

void Codec<Json>::check(std::vector<Problem>& problems, const std::string& name, const Json& value,
                        const Limits& limits) {
  if (value.is_number_float()) {
    Codec<double>::check(problems, name, value.get<double>(), limits);
  } else if (value.is_structured()) {
    for (const auto& [key, item] : value.items())
      check(problems, fmt::format("{}['{}']", name, key), item, limits);
  }
}

// --- Policies ---

const PolicyType* find_policy_type(const PolicyTypes& policies, const std::string& name) {
  for (const PolicyType& type : policies)
    if (type.name == name) return &type;
  return nullptr;
}

using PolicyCodec = Codec<std::shared_ptr<PolicyConfig>>;

void PolicyCodec::read(Reader& reader, const Json& json, std::shared_ptr<PolicyConfig>& value) {
  if (json.is_null()) {
    value.reset();
    return;
  }
  if (!json.is_object()) return reader.expected("an object with a type", json);
  const PolicyTypes& policies = *reader.policies();
  Json fields = json;
  if (const auto type = fields.find("type"); type != fields.end()) {
    const auto scope = reader.enter_field("type");
    const PolicyType* found =
        type->is_string() ? find_policy_type(policies, type->get<std::string>()) : nullptr;
    if (found == nullptr) return reader.expected(policy_names(policies), *type);
    if (value && value->type() != found->name)
      return reader.problem(
          fmt::format("can't turn a {} policy into {}", value->type(), found->name));
    if (!value) value = found->make();
    reader.mark_seen();
    fields.erase("type");
  }
  if (!value) return reader.problem(fmt::format("needs a type: {}", policy_names(policies)));
  find_policy_type(policies, value->type())->read(reader, fields, *value);
}

Json PolicyCodec::write(const std::shared_ptr<PolicyConfig>& value, const PolicyTypes* policies) {
  if (!value || policies == nullptr) return nullptr;
  const PolicyType* type = find_policy_type(*policies, value->type());
  if (type == nullptr) return nullptr;
  Json json = Json::object();
  json["type"] = type->name;
  json.update(type->write(*value));
  return json;
}

void PolicyCodec::describe(std::vector<Option>& options, Option option,
                           const std::shared_ptr<PolicyConfig>&, const PolicyTypes* policies) {
  const std::string name = option.name;
  option.group = true;
  option.expects = "an object with a type";
  options.push_back(option);
  option.group = false;
  option.expects = "text";
  option.name = name + ".type";
  option.help = "class of the policy";
  if (policies != nullptr)
    for (const PolicyType& type : *policies) option.limits.choices.push_back(type.name);
  options.push_back(option);
  option.limits = {};
  option.name = name + ".path";
  option.help = "folder of a trained policy to start from, with its configuration";
  options.push_back(option);
  if (policies != nullptr)
    for (const PolicyType& type : *policies) type.describe(options, name);
}

void PolicyCodec::check(std::vector<Problem>& problems, const std::string& name,
                        const std::shared_ptr<PolicyConfig>& value, const Limits&) {
  if (value) Codec<PolicyConfig>::check(problems, name, *value, {});
}

}  // namespace lerobot::config
