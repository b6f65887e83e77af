#include "lerobot/train/report/page.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "embedded/report.css.h"
#include "embedded/report.js.h"
#include "lerobot/train/report/charts.h"
#include "lerobot/train/report/html.h"
#include "lerobot/train/report/usage.h"

namespace lerobot::train {
namespace {

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class Page {
 public:
  explicit Page(const RunData& data) : data_(data), charts_(make_charts(data)) {}

  std::string build() {
    html_ = fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<title>{} – {}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape_html(name()), status(), embedded::report_css);
    add_header();
    add_navigation();
    html_ += "<main>\n";
    add_learning();
    add_time();
    add_resources();
    add_checkpoints();
    add_usages();
    add_start();
    add_configuration();
    add_records();
    html_ += "</main>\n";
    html_ += fmt::format("<footer>Written {} by lerobot.cpp from the records in {}.</footer>\n",
                         time_text(unix_time()), escape_html(data_.folder.string()));
    html_ += fmt::format(
        "<script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{}</script>\n"
        "</body>\n</html>\n",
        escape_script(charts_.data), embedded::report_js);
    return std::move(html_);
  }

 private:
  std::string name() const {
    const std::string job = text_at(data_.configuration, "/job_name");
    const std::string folder = data_.folder.filename().string();
    return job.empty() || job == folder ? folder : fmt::format("{} · {}", job, folder);
  }

  const char* status() const { return data_.state ? name_of(data_.state->status) : "unknown"; }
  bool is_running() const { return data_.state && data_.state->status == RunStatus::kRunning; }

  // ---- The head ---------------------------------------------------------------------------------

  void add_header() {
    html_ += fmt::format(
        "<header>\n<div class=\"head\"><h1>{}</h1><span class=\"chip {}\">{}</span></div>\n",
        escape_html(name()), status(), status());
    html_ += fmt::format("<p class=\"quiet\">{}</p>\n", escape_html(summary()));
    if (data_.state && !data_.state->message.empty() && data_.state->status != RunStatus::kFinished)
      html_ += fmt::format("<p class=\"message\">{}</p>\n", escape_html(data_.state->message));
    if (data_.state && data_.state->status == RunStatus::kDied)
      html_ += fmt::format(
          "<p class=\"message\">Process {} on {} is gone without having said why: killed, out of "
          "memory, or the machine was switched off. Its log has the last words; the checkpoints "
          "below are usable.</p>\n",
          data_.state->process.process, escape_html(data_.state->process.host));
    add_steps();
    add_tiles();
    html_ += "</header>\n";
  }

  std::string summary() const {
    std::string text;
    const auto add = [&text](const std::string& part) {
      if (part.empty()) return;
      text += (text.empty() ? "" : " · ") + part;
    };
    add(text_at(data_.configuration, "/policy/type"));
    add(text_at(data_.configuration, "/dataset/repo_id"));
    if (!data_.state) return text;
    add(fmt::format("{} rank{} on {}", data_.state->ranks, data_.state->ranks == 1 ? "" : "s",
                    data_.state->device));
    add(data_.state->process.host);
    add("begun " + time_text(begun()));
    return text;
  }

  /// Of the first run in this folder.
  double begun() const {
    const RunState& state = *data_.state;
    return state.before.empty() ? state.started : state.before.front().started;
  }

  void add_steps() {
    const std::int64_t done = data_.last_step();
    const std::int64_t steps = data_.state ? data_.state->steps : total_of_configuration();
    if (steps <= 0) return;
    html_ += fmt::format(
        "<div class=\"steps\"><span>step {} of {}</span><span>{}</span></div>\n"
        "<progress max=\"{}\" value=\"{}\" aria-label=\"steps done\">{:.0f} %</progress>\n",
        count_text(done), count_text(steps), escape_html(time_left()), steps, std::min(done, steps),
        100.0 * static_cast<double>(done) / static_cast<double>(steps));
  }

  std::int64_t total_of_configuration() const {
    const Json& config = data_.configuration;
    return config.is_object() && config.contains("steps") && config["steps"].is_number_integer()
               ? config["steps"].get<std::int64_t>()
               : 0;
  }

  /// From the pace of the last lines.
  std::string time_left() const {
    const Series* times = data_.find("unix_time");
    if (!is_running() || times == nullptr || times->values.size() < 2) return "";
    constexpr std::size_t kLines = 20;
    const std::size_t last = times->values.size() - 1;
    const std::size_t first = last > kLines ? last - kLines : 0;
    const double seconds = times->values[last] - times->values[first];
    const auto steps = static_cast<double>(times->steps[last] - times->steps[first]);
    const auto left = static_cast<double>(data_.state->steps - data_.last_step());
    if (!(seconds > 0) || steps <= 0 || left < 0) return "";
    return duration_text(seconds / steps * left) + " left";
  }

  void add_tile(const std::string& value, const std::string& label) {
    html_ += fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escape_html(value),
                         escape_html(label));
  }

  void add_tiles() {
    html_ += "<div class=\"tiles\">\n";
    const auto last = [this](const char* key) {
      const Series* series = data_.find(key);
      return series != nullptr && !series->empty() ? &series->values.back() : nullptr;
    };
    if (const double* loss = last("loss")) add_tile(number_text(*loss), "training loss");
    add_best_held_out();
    if (const double* speed = last("samples_per_s"))
      add_tile(number_text(*speed), "samples per second");
    if (const double* epochs = last("epochs")) add_tile(number_text(*epochs), "epochs");
    if (const double seconds = seconds_of_work(); seconds > 0)
      add_tile(duration_text(seconds), "of work");
    if (const double* bytes = last("process_memory_peak_bytes"))
      add_tile(bytes_text(*bytes), "memory of a process, peak");
    if (const double* gpu = last("mem_gb"))
      add_tile(fmt::format("{:.1f} GiB", *gpu), "memory of a GPU, peak");
    if (data_.state && data_.state->total_parameters > 0)
      add_tile(
          count_text(data_.state->learnable_parameters),
          data_.state->learnable_parameters == data_.state->total_parameters
              ? "parameters"
              : fmt::format("of {} parameters train", count_text(data_.state->total_parameters)));
    if (data_.state && data_.state->frames > 0)
      add_tile(count_text(data_.state->frames),
               fmt::format("frames in {} episodes", count_text(data_.state->episodes)));
    html_ += "</div>\n";
  }

  void add_best_held_out() {
    const Series* held_out = data_.find("eval_loss");
    if (held_out == nullptr) return;
    std::size_t best = held_out->values.size();
    for (std::size_t i = 0; i < held_out->values.size(); ++i)
      if (std::isfinite(held_out->values[i]) &&
          (best == held_out->values.size() || held_out->values[i] < held_out->values[best]))
        best = i;
    if (best == held_out->values.size()) return;
    add_tile(number_text(held_out->values[best]),
             fmt::format("best held-out loss, step {}", held_out->steps[best]));
  }

  /// Of all runs in this folder, without the time between them.
  double seconds_of_work() const {
    if (!data_.state) return 0;
    double seconds = data_.state->updated - data_.state->started;
    if (const Series* times = data_.find("unix_time"); times != nullptr && !times->empty())
      seconds = std::max(seconds, times->values.back() - data_.state->started);
    for (const EarlierRun& run : data_.state->before) seconds += run.updated - run.started;
    return seconds;
  }

  void add_navigation() {
    html_ +=
        "<nav aria-label=\"Sections\"><ul><li><a href=\"#learning\">Learning</a></li>"
        "<li><a href=\"#time\">Time</a></li><li><a href=\"#resources\">Memory and data</a></li>"
        "<li><a href=\"#checkpoints\">Checkpoints</a></li><li><a href=\"#use\">Use it</a></li>"
        "<li><a href=\"#start\">Start</a></li>"
        "<li><a href=\"#configuration\">Configuration</a></li></ul></nav>\n";
  }

  // ---- The sections -----------------------------------------------------------------------------

  void begin_section(const char* id, const char* title) {
    html_ += fmt::format(
        "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n"
        "<h2 id=\"{0}-title\">{1}</h2>\n",
        id, title);
  }
  void end_section() { html_ += "</section>\n"; }

  void add_figures(const std::string& figures, const char* otherwise) {
    if (figures.empty())
      html_ += fmt::format("<p class=\"quiet\">{}</p>\n", otherwise);
    else
      html_ += "<noscript><p>The curves need scripts.</p></noscript>\n<div class=\"charts\">\n" +
               figures + "</div>\n";
  }

  void add_learning() {
    begin_section("learning", "Learning");
    if (!charts_.learning.empty())
      html_ +=
          "<div class=\"tools\"><label>Smoothing <input id=\"smoothing\" type=\"range\" min=\"0\" "
          "max=\"0.98\" step=\"0.02\" value=\"0.6\"> <output id=\"smoothing-value\">0.6</output>"
          "</label></div>\n";
    add_figures(charts_.learning, "Nothing yet: --log_freq says after how many steps.");
    end_section();
  }

  void add_time() {
    begin_section("time", "Time");
    add_figures(charts_.speed, "Nothing yet: --log_freq says after how many steps.");
    add_time_table();
    end_section();
  }

  void add_time_table() {
    const std::vector<TimeShare> shares = time_shares(data_);
    double total = 0;
    for (const TimeShare& share : shares) total += share.seconds;
    if (!(total > 0)) return;
    html_ +=
        "<div class=\"card scroll\" style=\"margin-top:12px\"><table><thead><tr><th>part</th>"
        "<th class=\"number\">time</th><th class=\"number\">share</th><th></th></tr></thead>"
        "<tbody>\n";
    for (const TimeShare& share : shares) {
      const double percent = 100 * share.seconds / total;
      html_ += fmt::format(
          "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{:.1f} %</td>"
          "<td class=\"share\"><span class=\"bar\" style=\"width:{:.1f}%;background:var(--c{})\">"
          "</span></td></tr>\n",
          share.name, duration_text(share.seconds), percent, percent, share.color);
    }
    html_ += "</tbody></table></div>\n";
  }

  void add_resources() {
    begin_section("resources", "Memory and data");
    add_figures(charts_.resources, "Nothing yet: --log_freq says after how many steps.");
    end_section();
  }

  void add_checkpoints() {
    begin_section("checkpoints", "Checkpoints");
    if (data_.checkpoints.empty()) {
      html_ += "<p class=\"quiet\">There are none.</p>\n";
      return end_section();
    }
    html_ +=
        "<div class=\"card scroll\"><table><thead><tr><th class=\"number\">step</th>"
        "<th class=\"number\">size</th><th class=\"number\">held-out loss</th><th></th>"
        "<th>folder</th></tr></thead><tbody>\n";
    for (auto each = data_.checkpoints.rbegin(); each != data_.checkpoints.rend(); ++each) {
      const std::string remark = !each->missing.empty() ? "incomplete: lacks " + each->missing
                                 : each->is_last        ? "last"
                                                        : "";
      html_ += fmt::format(
          "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>"
          "<td>{}</td><td><code>{}</code></td></tr>\n",
          count_text(each->step), bytes_text(static_cast<double>(each->bytes)),
          each->held_out_loss ? number_text(*each->held_out_loss) : "–", escape_html(remark),
          escape_html(each->folder.lexically_relative(data_.folder).string()));
    }
    html_ += "</tbody></table></div>\n";
    end_section();
  }

  void add_usages() {
    begin_section("use", "Use it");
    const std::vector<Usage> list = usages(data_);
    if (list.empty())
      html_ += "<p class=\"quiet\">As soon as there is a complete checkpoint.</p>\n";
    else
      html_ += "<div class=\"card body\">\n";
    for (const Usage& usage : list) {
      html_ += fmt::format("<h3>{}</h3>\n", escape_html(usage.title));
      if (!usage.text.empty())
        html_ += fmt::format("<p class=\"quiet\">{}</p>\n", escape_html(usage.text));
      html_ +=
          fmt::format("<div class=\"snippet\"><pre>{}</pre></div>\n", escape_html(usage.snippet));
    }
    if (!list.empty()) html_ += "</div>\n";
    end_section();
  }

  void add_start() {
    begin_section("start", "Start");
    if (!data_.state) {
      html_ += "<p class=\"quiet\">run.json, which has it, can't be read.</p>\n";
      return end_section();
    }
    std::string panel;
    for (const std::string& line : data_.state->panel) panel += line + "\n";
    html_ += fmt::format(
        "<div class=\"card body\"><h3>Command</h3><div class=\"snippet\">"
        "<pre>{}</pre></div>\n<h3>Panel</h3><pre>{}</pre>\n",
        escape_html(data_.state->command), escape_html(panel));
    html_ += fmt::format("<p class=\"quiet\">{}</p></div>\n", escape_html(data_.state->program));
    end_section();
  }

  // ---- The configuration ------------------------------------------------------------------------

  void add_configuration() {
    begin_section("configuration", "Configuration");
    if (!data_.configuration.is_object()) {
      html_ += "<p class=\"quiet\">There is no train_config.json that can be read.</p>\n";
      return end_section();
    }
    html_ +=
        "<div class=\"card body\"><input id=\"search\" type=\"search\" "
        "placeholder=\"Search, for instance lr\" aria-label=\"Search in the configuration\">\n"
        "<div id=\"tree\">\n";
    add_tree(data_.configuration, "", 0);
    html_ += "</div></div>\n";
    end_section();
  }

  void add_tree(const Json& object, const std::string& prefix, int depth) {
    constexpr int kDeepest = 32;
    for (const auto& [key, value] : object.items()) {
      const std::string path = prefix.empty() ? key : prefix + "." + key;
      if (value.is_object() && !value.empty() && depth < kDeepest) {
        const bool open = depth == 0 && (key == "policy" || key == "dataset");
        html_ += fmt::format("<details data-open=\"{}\"{}><summary>{}</summary>\n", open ? 1 : 0,
                             open ? " open" : "", escape_html(key));
        add_tree(value, path, depth + 1);
        html_ += "</details>\n";
      } else {
        html_ += fmt::format(
            "<div class=\"leaf\" data-path=\"{}\"><span>{}</span><span>{}</span></div>\n",
            escape_html(path), escape_html(key), escape_html(value_text(value)));
      }
    }
  }

  // ---- What the page was made from --------------------------------------------------------------

  void add_records() {
    const bool has_runs = data_.state && !data_.state->before.empty();
    if (data_.notes.empty() && !has_runs) return;
    begin_section("records", "Records");
    html_ += "<div class=\"card body\">\n";
    if (has_runs) add_runs();
    if (!data_.notes.empty()) {
      html_ += "<h3>What could not be read</h3><ul class=\"notes\">\n";
      for (const std::string& note : data_.notes)
        html_ += fmt::format("<li>{}</li>\n", escape_html(note));
      html_ += "</ul>\n";
    }
    html_ += "</div>\n";
    end_section();
  }

  void add_runs() {
    html_ +=
        "<h3>Runs in this folder</h3><div class=\"scroll\"><table><thead><tr><th>begun</th>"
        "<th>after step</th><th>ended</th><th>ranks</th><th>host</th></tr></thead><tbody>\n";
    const auto add = [this](double started, std::int64_t step, const std::string& how,
                            std::int64_t ranks, const std::string& host) {
      html_ += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                           time_text(started), step, escape_html(how), ranks, escape_html(host));
    };
    for (const EarlierRun& run : data_.state->before)
      add(run.started, run.start_step, run.status, run.ranks, run.host);
    add(data_.state->started, data_.state->start_step, status(), data_.state->ranks,
        data_.state->process.host);
    html_ += "</tbody></table></div>\n";
  }

  const RunData& data_;
  Charts charts_;
  std::string html_;
};

}  // namespace

std::string report_page(const RunData& data) { return Page(data).build(); }

}  // namespace lerobot::train
