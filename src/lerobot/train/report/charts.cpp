#include "lerobot/train/report/charts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lerobot/distributed/step_clock.h"
#include "lerobot/train/report/html.h"
#include "lerobot/train/report/thinning.h"

namespace lerobot::train {
namespace {

/// Some more than a screen has columns.
constexpr std::size_t kMostPoints = 500;
/// A record that somebody fills with names of its own is not to make a page of any size.
constexpr std::size_t kMostOtherCharts = 24;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr int kColors = 9;

enum class Style {
  kNoisy,   ///< drawn faintly, with its average
  kExact,   ///< as it is
  kPoints,  ///< few values, far apart
};

struct Curve {
  const char* key;
  const char* name;
  double scale = 1;
  Style style = Style::kNoisy;
};

const char* name_of(Style style) {
  switch (style) {
    case Style::kNoisy:
      return "noisy";
    case Style::kExact:
      return "exact";
    case Style::kPoints:
      break;
  }
  return "points";
}

struct Chart {
  const char* title;
  const char* unit;
  std::vector<Curve> curves;
  bool log_button = false;
};

const std::vector<Chart>& learning_charts() {
  static const std::vector<Chart> charts = {
      {"Loss", "", {{"loss", "training"}, {"eval_loss", "held out", 1, Style::kPoints}}, true},
      // Of policies whose training loss has more terms, the curve above is flat.
      {"Held-out loss", "", {{"eval_loss", "held out"}}, true},
      {"Gradient norm", "before clipping", {{"grdn", "norm"}}, true},
      {"Learning rate", "", {{"lr", "rate", 1, Style::kExact}}, true},
      {"Loss scale", "fp16", {{"scale", "scale", 1, Style::kExact}}, true},
  };
  return charts;
}

const std::vector<Chart>& speed_charts() {
  static const std::vector<Chart> charts = {
      {"Speed", "samples per second", {{"samples_per_s", "samples/s"}}},
      {"Waiting for data",
       "seconds a step, rank 0",
       {{"wait_p50_s", "median"}, {"wait_p95_s", "95 %"}, {"wait_p99_s", "99 %"}},
       true},
      {"Standing still for checkpoints",
       "seconds",
       {{"checkpoint_stall_s", "stall", 1, Style::kPoints}}},
  };
  return charts;
}

const std::vector<Chart>& resource_charts() {
  static const std::vector<Chart> charts = {
      {"Memory",
       "GiB, of the rank with most",
       {{"process_memory_bytes", "process", 1 / kGiB},
        {"process_memory_peak_bytes", "process, peak", 1 / kGiB},
        {"mem_gb", "GPU, peak"}}},
      {"Read from the dataset", "MB per second", {{"bytes_per_s", "MB/s", 1e-6}}},
      {"Streamed episodes in memory",
       "GiB",
       {{"resident_bytes", "resident", 1 / kGiB}, {"reserved_bytes", "reserved", 1 / kGiB}}},
  };
  return charts;
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

/// "[1,2,null]"
template <class Values, class Text>
std::string json_list(const Values& values, const Text& text) {
  std::string list = "[";
  for (const auto& value : values) {
    if (list.size() > 1) list += ',';
    list += text(value);
  }
  return list + "]";
}

bool has_finite(const Series& series) {
  return std::ranges::any_of(series.values, [](double value) { return std::isfinite(value); });
}

class ChartBuilder {
 public:
  explicit ChartBuilder(const RunData& data) : data_(data) {}

  /// Nothing when none of its curves has a value.
  std::string add(const Chart& chart) {
    std::string series, legend, label;
    int color = 0;
    for (const Curve& curve : chart.curves) {
      const int own_color = color++;
      const Series* values = data_.find(curve.key);
      drawn_.insert(curve.key);
      if (values == nullptr || values->empty()) continue;
      if (!series.empty()) series += ',';
      series += series_json(curve.name, own_color, curve.style, *values, curve.scale);
      legend += legend_entry(curve.name, own_color);
      label += fmt::format("; {}: {}", curve.name, describe(*values, curve.scale));
    }
    if (series.empty()) return "";
    return figure(chart.title, chart.unit, chart.log_button, /*wide=*/false, legend, label,
                  fmt::format(R"({{"kind":"line","series":[{}]}})", series));
  }

  /// What no chart has drawn.
  std::string add_others() {
    std::string figures;
    std::size_t count = 0;
    for (const std::string& key : data_.keys) {
      if (drawn_.contains(key) || is_known_elsewhere(key)) continue;
      if (!has_finite(*data_.find(key)) || ++count > kMostOtherCharts) continue;
      figures += add({key.c_str(), "", {{key.c_str(), key.c_str()}}, true});
    }
    return figures;
  }

  std::string add_time() {
    std::string series, legend, label;
    for (std::size_t i = 0; i < distributed::kStepParts; ++i) {
      const char* name = name_of(static_cast<distributed::StepPart>(i));
      const std::string key = fmt::format("time_{}_s", name);
      drawn_.insert(key);
      const Series* values = data_.find(key);
      if (values == nullptr || values->empty()) continue;
      if (!series.empty()) series += ',';
      series += series_json(name, static_cast<int>(i), Style::kExact, *values, 1);
      legend += legend_entry(name, static_cast<int>(i));
      label += fmt::format("; {}: {}", name, describe(*values, 1));
    }
    if (series.empty()) return "";
    return figure("Where the time goes", "seconds a step, mean of the ranks", false, true, legend,
                  label, fmt::format(R"({{"kind":"stack","series":[{}]}})", series));
  }

  std::string take_data() {
    return fmt::format(R"({{"charts":[{}],"clock":{}}})", std::exchange(charts_, ""), clock());
  }

 private:
  /// Numbers that are shown in another form, or say the same as one that is shown.
  static bool is_known_elsewhere(std::string_view key) {
    static const std::set<std::string_view> kKnown = {
        "samples",       "episodes", "epochs",     "data_s",        "prep_s",
        "updt_s",        "step_s",   "bytes_read", "unix_time",     "evaluation_s",
        "first_batch_s", "cpu_s",    "pss_bytes",  "peak_rss_bytes"};
    return kKnown.contains(key);
  }

  static std::string legend_entry(std::string_view name, int color) {
    return fmt::format(R"html(<span><i style="background:var(--c{})"></i>{}</span>)html",
                       color % kColors, escape_html(name));
  }

  static std::string series_json(std::string_view name, int color, Style style,
                                 const Series& series, double scale) {
    const std::vector<ThinPoint> thinned = thin(series, kMostPoints);
    const bool has_buckets = thinned.size() < series.values.size();
    const auto step = [](const ThinPoint& p) { return std::to_string(p.step); };
    const auto value = [scale](double ThinPoint::*member) {
      return [scale, member](const ThinPoint& p) { return json_number(scale * p.*member); };
    };
    std::string json =
        fmt::format(R"({{"name":{},"color":{},"style":"{}","x":{},"y":{})",
                    Json(std::string(name)).dump(-1, ' ', true, Json::error_handler_t::replace),
                    color % kColors, name_of(style), json_list(thinned, step),
                    json_list(thinned, value(&ThinPoint::mean)));
    if (has_buckets)
      json += fmt::format(R"(,"lo":{},"hi":{})", json_list(thinned, value(&ThinPoint::least)),
                          json_list(thinned, value(&ThinPoint::greatest)));
    return json + "}";
  }

  /// For who can't see the curve.
  static std::string describe(const Series& series, double scale) {
    double least = INFINITY, greatest = -INFINITY;
    std::int64_t not_finite = 0;
    for (const double value : series.values) {
      if (std::isfinite(value)) {
        least = std::min(least, value);
        greatest = std::max(greatest, value);
      } else {
        ++not_finite;
      }
    }
    std::string text = fmt::format("{} at step {}", number_text(scale * series.values.back()),
                                   series.steps.back());
    if (least <= greatest)
      text += fmt::format(", between {} and {}", number_text(scale * least),
                          number_text(scale * greatest));
    if (not_finite > 0) text += fmt::format(", {} values not finite", not_finite);
    return text;
  }

  std::string figure(std::string_view title, std::string_view unit, bool log_button, bool wide,
                     const std::string& legend, const std::string& label, const std::string& json) {
    const std::string name = escape_html(title);
    std::string html =
        fmt::format(R"(<figure class="card{}"><figcaption>{})", wide ? " wide" : "", name);
    if (!unit.empty()) html += fmt::format(R"(<span class="unit">{}</span>)", escape_html(unit));
    if (log_button)
      html += fmt::format(
          R"(<button class="log" aria-pressed="false" title="Logarithmic scale of {}">log</button>)",
          name);
    html += fmt::format(
        R"(</figcaption><div class="plot" data-chart="{}" tabindex="0" role="img" aria-label="{}{}"></div>)",
        count_++, name, escape_html(label));
    html += fmt::format("<div class=\"legend\">{}</div></figure>\n", legend);
    if (!charts_.empty()) charts_ += ',';
    charts_ += json;
    return html;
  }

  /// Seconds since the run began, by step.
  std::string clock() const {
    const Series* times = data_.find("unix_time");
    if (times == nullptr || times->empty()) return "null";
    double start = times->values.front();
    if (data_.state && data_.state->started > 0) start = data_.state->started;
    if (data_.state && !data_.state->before.empty()) start = data_.state->before.front().started;
    const std::vector<ThinPoint> thinned = thin(*times, kMostPoints);
    return fmt::format(
        R"({{"x":{},"y":{}}})",
        json_list(thinned, [](const ThinPoint& p) { return std::to_string(p.step); }),
        json_list(thinned, [start](const ThinPoint& p) {
          return json_number(std::round(p.greatest - start));
        }));
  }

  const RunData& data_;
  std::set<std::string> drawn_;
  std::string charts_;
  int count_ = 0;
};

double sum_of(const Series& series) {
  double sum = 0;
  for (const double value : series.values)
    if (std::isfinite(value)) sum += value;
  return sum;
}

/// A line speaks for the steps since the one before it.
double weighted_sum(const Series& series) {
  double sum = 0;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (std::isfinite(series.values[i]))
      sum += series.values[i] * static_cast<double>(series.steps[i] - before);
    before = series.steps[i];
  }
  return sum;
}

}  // namespace

Charts make_charts(const RunData& data) {
  ChartBuilder builder(data);
  Charts charts;
  for (const Chart& chart : learning_charts()) charts.learning += builder.add(chart);
  charts.speed = builder.add_time();
  for (const Chart& chart : speed_charts()) charts.speed += builder.add(chart);
  for (const Chart& chart : resource_charts()) charts.resources += builder.add(chart);
  charts.learning += builder.add_others();
  charts.data = builder.take_data();
  return charts;
}

std::vector<TimeShare> time_shares(const RunData& data) {
  std::vector<TimeShare> shares;
  for (std::size_t i = 0; i < distributed::kStepParts; ++i) {
    const auto part = static_cast<distributed::StepPart>(i);
    // The lines of a checkpoint and of a held-out loss come after the last training line, too.
    const char* own_lines = part == distributed::StepPart::kCheckpoint   ? "checkpoint_stall_s"
                            : part == distributed::StepPart::kEvaluation ? "evaluation_s"
                                                                         : nullptr;
    const Series* own = own_lines != nullptr ? data.find(own_lines) : nullptr;
    const Series* step = data.find(fmt::format("time_{}_s", name_of(part)));
    double seconds = 0;
    if (own != nullptr)
      seconds = sum_of(*own);
    else if (step != nullptr)
      seconds = weighted_sum(*step);
    if (seconds > 0) shares.push_back({name_of(part), seconds, static_cast<int>(i) % kColors});
  }
  return shares;
}

}  // namespace lerobot::train
