// What every option says about itself: one line of help, the values it may take, and how it is
// treated. Structs get their table through option_help(const Struct*), found by the struct's
// namespace; reflection.h joins the tables with the described members.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lerobot::config {

/// The values that an option may take beyond its type. Applies to every element of a list, and to
/// the value of an option that may be null. Numbers that are not finite are always refused.
struct Limits {
  std::optional<double> least{};  // value >= least
  std::optional<double> above{};  // value > above
  std::optional<double> most{};   // value <= most
  std::optional<double> below{};  // value < below
  std::vector<std::string_view> choices{};

  bool allows(double value) const;
  bool allows(std::string_view value) const;
  /// "at least 1", "above 0 and below 1", "one of no, fp16, bf16"; empty without limits.
  std::string text() const;
};

Limits at_least(double least);
Limits above(double bound);
/// least <= value <= most
Limits between(double least, double most);
/// least <= value < below
Limits half_open(double least, double below);
Limits one_of(std::initializer_list<std::string_view> choices);

enum class OptionTrait {
  kPlain,
  kRequired,  // has no default
  kNewer,  // LeRobot 0.6.1 doesn't know it: written to files only when it differs from its default
  kUnrecorded,  // how a run is watched, not what it is: never in files, so that LeRobot reads them
  kRecorded,    // in files only, never on the command line
};

struct HelpText {
  std::string_view field;  // the member's name
  std::string_view text;
  Limits limits{};
  OptionTrait trait = OptionTrait::kPlain;
};
using HelpTexts = std::vector<HelpText>;

struct PolicyConfig;
struct AdamConfig;
struct AdamWConfig;
struct SgdConfig;
struct ConstantWithWarmupConfig;
struct CosineAnnealingWithWarmupConfig;
struct CosineDecayWithWarmupConfig;
struct DiffuserSchedulerConfig;
struct VqbetSchedulerConfig;
struct PolicyFeature;
struct ImageTransformConfig;
struct ImageTransformsConfig;
struct DatasetConfig;
struct ContextParallelConfig;
struct ParallelismConfig;
struct GradientAccumulationConfig;
struct MixedPrecisionPolicyConfig;
struct FsdpConfig;
struct DdpConfig;
struct CompileConfig;
struct ActivationCheckpointingConfig;
struct GradScalerConfig;
struct AcceleratorConfig;
struct EvalConfig;
struct EmaConfig;
struct WandbConfig;
struct TrackioConfig;
struct PeftConfig;
struct JobConfig;
struct ProfileConfig;
struct TrainConfig;

HelpTexts option_help(const PolicyConfig*);
HelpTexts option_help(const AdamConfig*);
HelpTexts option_help(const AdamWConfig*);
HelpTexts option_help(const SgdConfig*);
HelpTexts option_help(const ConstantWithWarmupConfig*);
HelpTexts option_help(const CosineAnnealingWithWarmupConfig*);
HelpTexts option_help(const CosineDecayWithWarmupConfig*);
HelpTexts option_help(const DiffuserSchedulerConfig*);
HelpTexts option_help(const VqbetSchedulerConfig*);
HelpTexts option_help(const PolicyFeature*);
HelpTexts option_help(const ImageTransformConfig*);
HelpTexts option_help(const ImageTransformsConfig*);
HelpTexts option_help(const DatasetConfig*);
HelpTexts option_help(const ContextParallelConfig*);
HelpTexts option_help(const ParallelismConfig*);
HelpTexts option_help(const GradientAccumulationConfig*);
HelpTexts option_help(const MixedPrecisionPolicyConfig*);
HelpTexts option_help(const FsdpConfig*);
HelpTexts option_help(const DdpConfig*);
HelpTexts option_help(const CompileConfig*);
HelpTexts option_help(const ActivationCheckpointingConfig*);
HelpTexts option_help(const GradScalerConfig*);
HelpTexts option_help(const AcceleratorConfig*);
HelpTexts option_help(const EvalConfig*);
HelpTexts option_help(const EmaConfig*);
HelpTexts option_help(const WandbConfig*);
HelpTexts option_help(const TrackioConfig*);
HelpTexts option_help(const PeftConfig*);
HelpTexts option_help(const JobConfig*);
HelpTexts option_help(const ProfileConfig*);
HelpTexts option_help(const TrainConfig*);

}  // namespace lerobot::config
