// meta/info.json of a LeRobotDataset v3.0: version, frame rate, features and path templates.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/json.h"

namespace lerobot::dataset {

/// How the values of a feature travel in a batch.
enum class ValueType {
  kFloat32,  ///< every floating dtype
  kInt64,    ///< every integer dtype
  kBool,
  kString,
  kImage,  ///< encoded image files in the data Parquet
  kVideo,  ///< frames of MP4 files
};

/// Numbers of the quantiser that packed depth into 12-bit video codes. Distances in metres.
struct DepthQuantizer {
  double min_m = 0.01;
  double max_m = 10.0;
  double shift_m = 3.5;
  bool use_log = true;
  bool operator==(const DepthQuantizer&) const = default;
};

/// One entry of "features".
struct Feature {
  std::string name;
  std::string dtype;  ///< as declared: a numpy scalar name, "string", "image" or "video"
  ValueType type = ValueType::kFloat32;
  std::vector<std::int64_t> shape;  ///< as declared; {1} is a scalar
  Json names;                       ///< as declared: a list, an object or null
  bool is_depth = false;
  std::optional<std::string> depth_unit;  ///< "m" or "mm": the unit of depth images and statistics
  DepthQuantizer depth_quantizer;

  bool is_camera() const { return type == ValueType::kImage || type == ValueType::kVideo; }
  /// A number, boolean or string a frame: read without an axis of its own.
  bool is_scalar() const { return shape.size() == 1 && shape[0] == 1; }
  /// The shape of one frame's value as a policy sees it: cameras (C, H, W), scalars ().
  std::vector<std::int64_t> sample_shape() const;
  /// Numbers in one frame's value.
  std::int64_t elements() const;
};

/// A path of info.json with Python's format fields {chunk_index}, {file_index} and {video_key},
/// each with an optional width as in {chunk_index:03d}.
class PathTemplate {
 public:
  /// `option` names the key of info.json in messages. Throws Error on unknown fields, formats other
  /// than decimal widths, absolute paths, ".." and unbalanced braces.
  PathTemplate(std::string_view text, std::string_view option);

  const std::string& text() const { return text_; }
  /// A path relative to the dataset's root, with '/' between its parts.
  std::string expand(std::int64_t chunk_index, std::int64_t file_index,
                     std::string_view video_key = {}) const;

 private:
  enum class Field { kNone, kChunkIndex, kFileIndex, kVideoKey };
  struct Piece {
    std::string literal;  // comes before the field
    Field field = Field::kNone;
    int width = 0;
    bool zero_padded = false;
  };
  std::string text_;
  std::vector<Piece> pieces_;
};

struct DatasetInfo {
  std::string codebase_version;
  double fps = 0.0;
  std::vector<Feature> features;  ///< in the order of the file
  std::int64_t total_episodes = 0;
  std::int64_t total_frames = 0;
  std::int64_t total_tasks = 0;
  PathTemplate data_path{"data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "data_path"};
  std::optional<PathTemplate> video_path;
  std::optional<std::string> robot_type;

  /// Null when there is no such feature.
  const Feature* find(std::string_view name) const;
  /// Names of the video features, in order: the cameras whose segments meta/episodes describes.
  std::vector<std::string> video_keys() const;
};

/// Reads and checks an info.json. Throws Error naming the file, the key and the value. Unknown keys
/// give one warning.
DatasetInfo read_dataset_info(const std::filesystem::path& path);

/// The same for a file's content; `name` stands for the file in messages.
DatasetInfo parse_dataset_info(const Json& json, std::string_view name);

}  // namespace lerobot::dataset
