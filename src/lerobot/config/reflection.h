// From described structs (Boost.Describe) to options: reading JSON, writing JSON, listing, limits.
//
// Codec<T> knows one kind of member. A described struct is a group of options, one a member, in the
// order of its description, base class first. Members' names are the names in files, but for a
// trailing underscore (`private_` is "private"). A policy's configuration joins with
//
//   BOOST_DESCRIBE_STRUCT(ActConfig, (config::PolicyConfig), (chunk_size, ...))
//   config::HelpTexts option_help(const ActConfig*);   // its own fields, in its own namespace
//   config::policy_type<ActConfig>()                   // the entry in the registry
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/describe/bases.hpp>
#include <boost/describe/class.hpp>
#include <boost/describe/members.hpp>
#include <boost/describe/modifiers.hpp>
#include <boost/mp11/algorithm.hpp>

#include "lerobot/base/json.h"
#include "lerobot/config/optim_config.h"
#include "lerobot/config/option_help.h"
#include "lerobot/config/policy_config.h"
#include "lerobot/config/policy_types.h"
#include "lerobot/config/reader.h"

namespace lerobot::config {

// --- Options ---

/// One option, or a group of them, as --help and the command line see it.
struct Option {
  std::string name;  // dotted
  std::string help;
  std::string expects;  // "an integer", "a list of text or null"
  Json default_value;
  Limits limits;
  OptionTrait trait = OptionTrait::kPlain;
  bool group = false;
  bool map = false;    // an object with free keys: taken as a whole
  std::string choice;  // only under this `type` of its polymorphic group, for instance "adamw"
};

// --- Described structs ---

template <class T>
concept Described = boost::describe::has_describe_members<T>::value && std::is_class_v<T>;

/// The name in files and on the command line of a member.
constexpr std::string_view option_name(std::string_view member) {
  return member.ends_with('_') ? member.substr(0, member.size() - 1) : member;
}

/// The help of every member of T, base classes included.
template <Described T>
const HelpTexts& help_texts() {
  static const HelpTexts texts = [] {
    HelpTexts all = option_help(static_cast<const T*>(nullptr));
    boost::mp11::mp_for_each<boost::describe::describe_bases<T, boost::describe::mod_any_access>>(
        [&](auto base) {
          const HelpTexts& inherited = help_texts<typename decltype(base)::type>();
          all.insert(all.end(), inherited.begin(), inherited.end());
        });
    return all;
  }();
  return texts;
}

template <Described T>
const HelpText& help_of(std::string_view member) {
  static const HelpText none{};
  for (const HelpText& text : help_texts<T>())
    if (text.field == member) return text;
  return none;
}

/// Calls visit(member name, member, HelpText) for every described member of `object`, in order.
template <class Object, class Visit>
void for_each_member(Object& object, Visit&& visit) {
  using T = std::remove_const_t<Object>;
  using Members = boost::describe::describe_members<T, boost::describe::mod_inherited |
                                                           boost::describe::mod_any_access>;
  boost::mp11::mp_for_each<Members>([&](auto member) {
    visit(std::string_view(member.name), object.*member.pointer, help_of<T>(member.name));
  });
}

// --- Codecs ---
//
// A Codec<T> has
//   static void read(Reader&, const Json&, T&);
//   static Json write(const T&, const PolicyTypes*);
//   static void describe(std::vector<Option>&, Option, const T& default, const PolicyTypes*);
//   static void check(std::vector<Problem>&, const std::string& name, const T&, const Limits&);
// and, for those that are one option and not a group, static std::string expects().

template <class T>
struct Codec;

void report_limit(std::vector<Problem>& problems, const std::string& name, const Json& value,
                  const std::string& expected);

/// describe() of a single option.
template <class T>
void describe_leaf(std::vector<Option>& options, Option option, const T& value) {
  option.expects = Codec<T>::expects();
  option.default_value = Codec<T>::write(value, nullptr);
  options.push_back(std::move(option));
}

template <>
struct Codec<bool> {
  /// LeRobot writes some of its flags as 0 and 1 after a load: both are read.
  static void read(Reader& reader, const Json& json, bool& value);
  static Json write(bool value, const PolicyTypes*) { return value; }
  static std::string expects() { return "true or false"; }
  static void describe(std::vector<Option>& options, Option option, bool value,
                       const PolicyTypes*) {
    describe_leaf<bool>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>&, const std::string&, bool, const Limits&) {}
};

template <>
struct Codec<std::int64_t> {
  static void read(Reader& reader, const Json& json, std::int64_t& value);
  static Json write(std::int64_t value, const PolicyTypes*) { return value; }
  static std::string expects() { return "an integer"; }
  static void describe(std::vector<Option>& options, Option option, std::int64_t value,
                       const PolicyTypes*) {
    describe_leaf<std::int64_t>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>& problems, const std::string& name, std::int64_t value,
                    const Limits& limits);
};

template <>
struct Codec<double> {
  static void read(Reader& reader, const Json& json, double& value);
  static Json write(double value, const PolicyTypes*) { return value; }
  static std::string expects() { return "a number"; }
  static void describe(std::vector<Option>& options, Option option, double value,
                       const PolicyTypes*) {
    describe_leaf<double>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>& problems, const std::string& name, double value,
                    const Limits& limits);
};

template <>
struct Codec<std::string> {
  static void read(Reader& reader, const Json& json, std::string& value);
  static Json write(const std::string& value, const PolicyTypes*) { return value; }
  static std::string expects() { return "text"; }
  static void describe(std::vector<Option>& options, Option option, const std::string& value,
                       const PolicyTypes*) {
    describe_leaf<std::string>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>& problems, const std::string& name,
                    const std::string& value, const Limits& limits);
};

/// Any value: kept as it is.
template <>
struct Codec<Json> {
  static void read(Reader& reader, const Json& json, Json& value);
  static Json write(const Json& value, const PolicyTypes*) { return value; }
  static std::string expects() { return "any value"; }
  static void describe(std::vector<Option>& options, Option option, const Json& value,
                       const PolicyTypes*) {
    describe_leaf<Json>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>& problems, const std::string& name, const Json& value,
                    const Limits& limits);
};

/// An enumeration with names in files: enum_names(Enum) gives them (policy_config.h).
template <class Enum>
requires std::is_enum_v<Enum>
struct Codec<Enum> {
  static void read(Reader& reader, const Json& json, Enum& value) {
    if (json.is_string()) {
      for (const auto& [candidate, name] : enum_names(Enum{})) {
        if (name != json.get_ref<const std::string&>()) continue;
        value = candidate;
        reader.mark_seen();
        return;
      }
    }
    reader.expected(expects(), json);
  }
  static Json write(Enum value, const PolicyTypes*) { return std::string(to_string(value)); }
  static std::string expects() {
    std::string text;
    for (const auto& [candidate, name] : enum_names(Enum{})) {
      text += text.empty() ? "one of " : ", ";
      text += name;
    }
    return text;
  }
  static void describe(std::vector<Option>& options, Option option, Enum value,
                       const PolicyTypes*) {
    describe_leaf<Enum>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>&, const std::string&, Enum, const Limits&) {}
};

template <class T>
struct Codec<std::vector<T>> {
  static void read(Reader& reader, const Json& json, std::vector<T>& value) {
    if (!json.is_array()) return reader.expected(expects(), json);
    std::vector<T> items(json.size());
    const std::size_t problems = reader.problem_count();
    for (std::size_t i = 0; i < json.size(); ++i) {
      const auto scope = reader.enter_item(i);
      Codec<T>::read(reader, json[i], items[i]);
    }
    if (reader.problem_count() == problems) value = std::move(items);
    reader.mark_seen();
  }
  static Json write(const std::vector<T>& value, const PolicyTypes* policies) {
    Json json = Json::array();
    for (const T& item : value) json.push_back(Codec<T>::write(item, policies));
    return json;
  }
  static std::string expects() {
    if constexpr (std::is_same_v<T, std::int64_t>) return "a list of integers";
    if constexpr (std::is_same_v<T, double>) return "a list of numbers";
    if constexpr (std::is_same_v<T, std::string>) return "a list of text";
    return "a list";
  }
  static void describe(std::vector<Option>& options, Option option, const std::vector<T>& value,
                       const PolicyTypes*) {
    describe_leaf<std::vector<T>>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>& problems, const std::string& name,
                    const std::vector<T>& value, const Limits& limits) {
    for (std::size_t i = 0; i < value.size(); ++i)
      Codec<T>::check(problems, name + "[" + std::to_string(i) + "]", value[i], limits);
  }
};

/// An object with free keys. Map is a std::map or a vector of pairs, which keeps the file's order.
template <class Map, class T>
struct MapCodec {
  static void read(Reader& reader, const Json& json, Map& value) {
    if (json.is_null()) {  // LeRobot takes null for "fill it in from the dataset"
      value.clear();
      reader.mark_seen();
      return;
    }
    if (!json.is_object()) return reader.expected(expects(), json);
    Map entries;
    if (reader.merge_maps) entries = value;
    const std::size_t problems = reader.problem_count();
    for (const auto& [key, item] : json.items()) {
      const auto scope = reader.enter_key(key);
      Codec<T>::read(reader, item, entry(entries, key));
    }
    if (reader.problem_count() == problems) value = std::move(entries);
    reader.mark_seen();
  }
  static Json write(const Map& value, const PolicyTypes* policies) {
    Json json = Json::object();
    for (const auto& [key, item] : value) json[key] = Codec<T>::write(item, policies);
    return json;
  }
  static std::string expects() { return "an object such as {name: value}"; }
  static void describe(std::vector<Option>& options, Option option, const Map& value,
                       const PolicyTypes*) {
    option.map = true;
    describe_leaf<Map>(options, std::move(option), value);
  }
  static void check(std::vector<Problem>& problems, const std::string& name, const Map& value,
                    const Limits& limits) {
    for (const auto& [key, item] : value)
      Codec<T>::check(problems, std::string(name).append("['").append(key).append("']"), item,
                      limits);
  }

 private:
  static T& entry(std::map<std::string, T>& entries, const std::string& key) {
    return entries[key];
  }
  static T& entry(std::vector<std::pair<std::string, T>>& entries, const std::string& key) {
    for (auto& [name, item] : entries)
      if (name == key) return item;
    return entries.emplace_back(key, T{}).second;
  }
};

template <class T>
struct Codec<std::map<std::string, T>> : MapCodec<std::map<std::string, T>, T> {};
template <class T>
struct Codec<std::vector<std::pair<std::string, T>>>
    : MapCodec<std::vector<std::pair<std::string, T>>, T> {};

template <Described T>
struct Codec<T> {
  static void read(Reader& reader, const Json& json, T& value) {
    if (!json.is_object()) return reader.expected("an object", json);
    for (const auto& entry : json.items()) {
      bool known = false;
      for_each_member(value, [&](std::string_view member, auto& field, const HelpText&) {
        if (option_name(member) != entry.key()) return;
        known = true;
        const auto scope = reader.enter_field(entry.key());
        Codec<std::remove_cvref_t<decltype(field)>>::read(reader, entry.value(), field);
      });
      if (!known) reader.unknown(entry.key(), names());
    }
    reader.mark_seen();
  }

  static std::vector<std::string> names() {
    std::vector<std::string> names;
    boost::mp11::mp_for_each<boost::describe::describe_members<
        T, boost::describe::mod_inherited | boost::describe::mod_any_access>>(
        [&](auto member) { names.emplace_back(option_name(member.name)); });
    return names;
  }

  static Json write(const T& value, const PolicyTypes* policies) {
    static const T defaults{};
    Json json = Json::object();
    Json unchanged = Json::object();
    for_each_member(defaults,
                    [&](std::string_view member, const auto& field, const HelpText& help) {
                      if (help.trait == OptionTrait::kNewer)
                        unchanged[std::string(member)] =
                            Codec<std::remove_cvref_t<decltype(field)>>::write(field, policies);
                    });
    for_each_member(value, [&](std::string_view member, const auto& field, const HelpText& help) {
      if (help.trait == OptionTrait::kUnrecorded) return;
      Json written = Codec<std::remove_cvref_t<decltype(field)>>::write(field, policies);
      if (help.trait == OptionTrait::kNewer && written == unchanged[std::string(member)]) return;
      json[std::string(option_name(member))] = std::move(written);
    });
    return json;
  }

  static std::string expects() { return "an object"; }

  static void describe(std::vector<Option>& options, Option option, const T& value,
                       const PolicyTypes* policies) {
    const std::string prefix = option.name.empty() ? "" : option.name + ".";
    const std::string choice = option.choice;
    if (!option.name.empty()) {
      option.group = true;
      option.expects = expects();
      options.push_back(std::move(option));
    }
    describe_members(options, prefix, choice, value, policies);
  }
  /// The members alone, without an Option for the group.
  static void describe_members(std::vector<Option>& options, const std::string& prefix,
                               const std::string& choice, const T& value,
                               const PolicyTypes* policies) {
    for_each_member(value, [&](std::string_view member, const auto& field, const HelpText& help) {
      Option option;
      option.name = prefix + std::string(option_name(member));
      option.help = help.text;
      option.limits = help.limits;
      option.trait = help.trait;
      option.choice = choice;
      Codec<std::remove_cvref_t<decltype(field)>>::describe(options, std::move(option), field,
                                                            policies);
    });
  }

  static void check(std::vector<Problem>& problems, const std::string& name, const T& value,
                    const Limits&) {
    const std::string prefix = name.empty() ? "" : name + ".";
    for_each_member(value, [&](std::string_view member, const auto& field, const HelpText& help) {
      Codec<std::remove_cvref_t<decltype(field)>>::check(
          problems, prefix + std::string(option_name(member)), field, help.limits);
    });
  }
};

template <class T>
inline constexpr bool kIsVariant = false;
template <class... Alternatives>
inline constexpr bool kIsVariant<std::variant<Alternatives...>> = true;

/// One of several described structs, chosen by the key `type` (each struct's kType).
template <class T>
concept Choice = kIsVariant<T>;

/// Whether `type` may be left out of a new object: the first alternative is meant then.
template <class T>
inline constexpr bool kHasDefaultChoice = false;
template <>
inline constexpr bool kHasDefaultChoice<OptimizerConfig> = true;

template <Described... Alternatives>
struct Codec<std::variant<Alternatives...>> {
  using T = std::variant<Alternatives...>;

  static std::vector<std::string_view> names() { return {Alternatives::kType...}; }
  static std::string_view type_of(const T& value) {
    return std::visit([](const auto& alternative) -> std::string_view { return alternative.kType; },
                      value);
  }
  static void read(Reader& reader, const Json& json, T& value) {
    read_over(reader, json, value, false);
  }
  /// With `keep`, a changed `type` keeps the values of the options that both alternatives have.
  static void read_over(Reader& reader, const Json& json, T& value, bool keep) {
    if (!json.is_object()) return reader.expected(expects(), json);
    Json fields = json;
    if (const auto type = fields.find("type"); type != fields.end()) {
      const auto scope = reader.enter_field("type");
      if (!type->is_string() || !is_name(type->get_ref<const std::string&>()))
        return reader.expected(Limits{.choices = names()}.text(), *type);
      if (*type != std::string(type_of(value))) {
        Json before = write(value, nullptr);
        choose(type->get_ref<const std::string&>(), value);
        before.erase("type");
        std::vector<Problem> unshared;
        Reader quiet(nullptr, &unshared);
        if (keep) read_fields(quiet, before, value);
      }
      reader.mark_seen();
      fields.erase("type");
    }
    read_fields(reader, fields, value);
  }

  static Json write(const T& value, const PolicyTypes* policies) {
    Json json = Json::object();
    json["type"] = std::string(type_of(value));
    std::visit(
        [&](const auto& alternative) {
          json.update(
              Codec<std::remove_cvref_t<decltype(alternative)>>::write(alternative, policies));
        },
        value);
    return json;
  }
  static std::string expects() { return "an object with a type"; }
  static void describe(std::vector<Option>& options, Option option, const T&,
                       const PolicyTypes* p) {
    const std::string name = option.name;
    option.group = true;
    option.expects = expects();
    options.push_back(option);
    option.group = false;
    option.name = name + ".type";
    option.help = "class of the " + name;
    option.expects = "text";
    option.limits.choices = names();
    options.push_back(option);
    (Codec<Alternatives>::describe_members(options, name + ".", Alternatives::kType, Alternatives{},
                                           p),
     ...);
  }
  static void check(std::vector<Problem>& problems, const std::string& name, const T& value,
                    const Limits& limits) {
    std::visit(
        [&](const auto& alternative) {
          Codec<std::remove_cvref_t<decltype(alternative)>>::check(problems, name, alternative,
                                                                   limits);
        },
        value);
  }

 private:
  static bool is_name(const std::string& type) {
    for (const std::string_view name : names())
      if (name == type) return true;
    return false;
  }
  static void choose(const std::string& type, T& value) {
    ((type == Alternatives::kType ? void(value = Alternatives{}) : void()), ...);
  }
  static void read_fields(Reader& reader, const Json& fields, T& value) {
    std::visit(
        [&](auto& alternative) {
          Codec<std::remove_cvref_t<decltype(alternative)>>::read(reader, fields, alternative);
        },
        value);
  }
};

template <class T>
struct Codec<std::optional<T>> {
  static void read(Reader& reader, const Json& json, std::optional<T>& value) {
    if (json.is_null()) {
      value.reset();
      reader.mark_seen();
      return;
    }
    if constexpr (Choice<T> && !kHasDefaultChoice<T>) {
      if (!value && json.is_object() && !json.contains("type"))
        return reader.problem("needs a type: " + Limits{.choices = Codec<T>::names()}.text());
    }
    T inner = value ? *value : T{};
    const std::size_t problems = reader.problem_count();
    if constexpr (Choice<T>) {
      Codec<T>::read_over(reader, json, inner, value.has_value());
    } else {
      Codec<T>::read(reader, json, inner);
    }
    if (reader.problem_count() == problems) value = std::move(inner);
  }
  static Json write(const std::optional<T>& value, const PolicyTypes* policies) {
    return value ? Codec<T>::write(*value, policies) : Json(nullptr);
  }
  static std::string expects() { return Codec<T>::expects() + " or null"; }
  static void describe(std::vector<Option>& options, Option option, const std::optional<T>& value,
                       const PolicyTypes* policies) {
    if constexpr (Described<T> || Choice<T>) {
      Codec<T>::describe(options, std::move(option), value ? *value : T{}, policies);
    } else {
      describe_leaf<std::optional<T>>(options, std::move(option), value);
    }
  }
  static void check(std::vector<Problem>& problems, const std::string& name,
                    const std::optional<T>& value, const Limits& limits) {
    if (value) Codec<T>::check(problems, name, *value, limits);
  }
};

/// The policy: its `type` chooses among Reader::policies().
template <>
struct Codec<std::shared_ptr<PolicyConfig>> {
  static void read(Reader& reader, const Json& json, std::shared_ptr<PolicyConfig>& value);
  static Json write(const std::shared_ptr<PolicyConfig>& value, const PolicyTypes* policies);
  static void describe(std::vector<Option>& options, Option option,
                       const std::shared_ptr<PolicyConfig>& value, const PolicyTypes* policies);
  /// The fields that every policy has; PolicyType::check knows the others.
  static void check(std::vector<Problem>& problems, const std::string& name,
                    const std::shared_ptr<PolicyConfig>& value, const Limits& limits);
};

// --- Registry ---

/// What configuration needs to know of the policy configuration T.
template <class T>
PolicyType policy_type() {
  static_assert(std::is_base_of_v<PolicyConfig, T> && Described<T>);
  PolicyType type;
  type.name = T{}.type();
  type.make = []() -> std::unique_ptr<PolicyConfig> { return std::make_unique<T>(); };
  type.read = [](Reader& reader, const Json& fields, PolicyConfig& config) {
    Codec<T>::read(reader, fields, static_cast<T&>(config));
  };
  type.write = [](const PolicyConfig& config) {
    return Codec<T>::write(static_cast<const T&>(config), nullptr);
  };
  type.describe = [](std::vector<Option>& options, const std::string& prefix) {
    const T defaults{};
    Codec<T>::describe_members(options, prefix + ".", defaults.type(), defaults, nullptr);
  };
  type.check = [](std::vector<Problem>& problems, const std::string& prefix,
                  const PolicyConfig& config) {
    Codec<T>::check(problems, prefix, static_cast<const T&>(config), Limits{});
  };
  return type;
}

}  // namespace lerobot::config
