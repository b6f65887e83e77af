#include "lerobot/streaming/coverage_pool.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/random.h"
#include "lerobot/streaming/pending_episodes.h"

namespace lerobot::streaming {
namespace {

/// Frames left in every slot, for drawing a slot with a probability proportional to them. A
/// complete binary tree whose nodes hold the frames of their left half: a draw is one descent
/// without a branch that depends on it.
class FrameTree {
 public:
  explicit FrameTree(std::size_t slots) : slots_(std::bit_ceil(slots)), left_half_(slots_) {}

  void clear() { std::ranges::fill(left_half_, 0); }

  void add(std::size_t slot, std::uint64_t frames) {
    for (std::size_t node = slots_ + slot; node > 1; node /= 2)
      if (node % 2 == 0) left_half_[node / 2] += frames;
  }

  /// Takes away frame number `frame` of all, counted through the slots; returns its slot.
  std::size_t take(std::uint64_t frame) {
    std::size_t node = 1;
    while (node < slots_) {
      const std::uint64_t frames = left_half_[node];
      const bool right = frame >= frames;
      left_half_[node] = frames - (right ? 0 : 1);
      frame -= right ? frames : 0;
      node = 2 * node + (right ? 1 : 0);
    }
    return node - slots_;
  }

 private:
  std::size_t slots_;
  std::vector<std::uint64_t> left_half_;
};

/// An episode in the pool, or one that has left and whose slot is not given away yet.
struct Resident {
  std::int32_t entry = 0;
  std::int32_t left = 0;  ///< frames that are not drawn yet; 0: it has left
  std::uint64_t bytes = 0;
  /// Where the generator stood when the episode's frames were shuffled. Skipping needs only to know
  /// where it stands afterwards; the frames are shuffled when the first of them is drawn.
  Pcg64 shuffle_from;
  std::vector<std::int32_t> frames;
};

/// The order of an epoch's episodes, and the generator behind its shuffle.
struct EpochOrder {
  std::int64_t epoch = 0;
  std::vector<std::int32_t> entries;
  Pcg64 generator;
};

}  // namespace

// --- State --------------------------------------------------------------------------------------

class CoveragePool::State {
 public:
  State(std::span<const std::int64_t> episodes, std::vector<std::int32_t> frames, EpisodeBytes size,
        CoveragePoolOptions options);

  std::int64_t frames_per_epoch() const { return frames_per_epoch_; }
  std::int64_t epoch() const { return epoch_; }
  std::int64_t position() const { return position_; }
  std::uint64_t resident_bytes() const { return resident_bytes_; }
  Anchor next();
  void skip(std::int64_t samples);
  std::vector<Change> take_changes() { return std::exchange(changes_, {}); }
  std::vector<std::int64_t> residents() const;
  std::vector<std::int64_t> upcoming(std::int64_t count) const;

 private:
  std::int64_t episode(std::int32_t entry) const {
    return episodes_[static_cast<std::size_t>(entry)];
  }

  EpochOrder make_order(std::int64_t epoch) const;
  void begin_epoch(std::int64_t epoch);
  void admit();
  void add_resident(const PendingEpisodes::Admission& admission);
  void give_away_empty_slots();
  void retire(Resident& resident);

  std::size_t draw_slot();
  void begin_round();
  void replay(std::int64_t samples);
  void replay_remaining(std::int64_t samples);
  std::vector<Change> followed() const;
  void record_difference(const std::vector<Change>& before);

  CoveragePoolOptions options_;
  EpisodeBytes size_;
  std::vector<std::int32_t> episodes_;  // their numbers; entry e of it has frames_[e] frames
  std::vector<std::int32_t> frames_;
  std::int64_t frames_per_epoch_ = 0;

  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  Pcg64 generator_;
  PendingEpisodes pending_;
  mutable std::optional<EpochOrder> next_order_;  // once upcoming() has looked there

  std::size_t slots_;
  std::vector<Resident> residents_;  // by slot, in the order of admission
  FrameTree tree_;                   // of `remaining`
  std::vector<std::size_t> round_;   // of `round_robin`: the slots to come, last one first
  std::size_t resident_count_ = 0;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t frames_left_ = 0;  // in all residents

  bool recording_ = true;  // not while skipping
  std::vector<Change> changes_;
};

namespace {

std::vector<std::int32_t> numbers_of(std::span<const std::int64_t> episodes,
                                     const std::vector<std::int32_t>& frames) {
  if (episodes.size() != frames.size())
    fail("the stream has {} episodes, but {} episode lengths", episodes.size(), frames.size());
  std::vector<std::int32_t> numbers;
  numbers.reserve(episodes.size());
  for (std::size_t i = 0; i < episodes.size(); ++i) {
    if (i > 0 && episodes[i] <= episodes[i - 1])
      fail("the stream's episodes must ascend, found {} after {}", episodes[i], episodes[i - 1]);
    if (frames[i] < 0)
      fail("the length of episode {} must not be negative, found {}", episodes[i], frames[i]);
    if (frames[i] > 0)
      numbers.push_back(checked_cast<std::int32_t>(episodes[i], "the number of an episode"));
  }
  if (numbers.empty())
    fail("there is no frame to stream: {} episodes are selected and none has a frame",
         episodes.size());
  return numbers;
}

CoveragePoolOptions checked(CoveragePoolOptions options) {
  if (options.pool_size < 1)
    fail(
        "the pool of a streaming worker must hold at least 1 episode, found {}; set "
        "--dataset.streaming_episode_pool_size",
        options.pool_size);
  if (options.byte_budget < 1)
    fail(
        "the byte budget of a streaming worker must be at least 1 byte, found 0; set "
        "--dataset.streaming_byte_budget_gb");
  options.byte_budget =
      std::min<std::uint64_t>(options.byte_budget, std::numeric_limits<std::int64_t>::max());
  return options;
}

/// Slots of the residents: twice the pool, so that slots of those that left are given away only
/// after as many admissions.
std::size_t slots_for(std::int64_t pool_size, std::size_t episodes) {
  return 2 * static_cast<std::size_t>(
                 std::min<std::uint64_t>(static_cast<std::uint64_t>(pool_size), episodes));
}

}  // namespace

CoveragePool::State::State(std::span<const std::int64_t> episodes, std::vector<std::int32_t> frames,
                           EpisodeBytes size, CoveragePoolOptions options)
    : options_(checked(options)),
      size_(std::move(size)),
      episodes_(numbers_of(episodes, frames)),
      frames_(std::move(frames)),
      generator_(options.seed, 0),
      slots_(slots_for(options.pool_size, episodes_.size())),
      tree_(slots_) {
  std::erase(frames_, 0);
  frames_per_epoch_ = std::accumulate(frames_.begin(), frames_.end(), std::int64_t{0});
  residents_.reserve(slots_);
  begin_epoch(0);
}

// --- Admission ----------------------------------------------------------------------------------

EpochOrder CoveragePool::State::make_order(std::int64_t epoch) const {
  EpochOrder order{epoch, std::vector<std::int32_t>(episodes_.size()),
                   Pcg64(options_.seed, static_cast<std::uint64_t>(epoch))};
  std::iota(order.entries.begin(), order.entries.end(), 0);
  order.generator.shuffle(std::span(order.entries));
  return order;
}

void CoveragePool::State::begin_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  position_ = 0;
  pending_ = {};  // Its memory is free before the next order is made.
  EpochOrder order =
      next_order_ && next_order_->epoch == epoch ? std::move(*next_order_) : make_order(epoch);
  next_order_.reset();
  pending_ = PendingEpisodes(std::move(order.entries));
  generator_ = order.generator;
  residents_.clear();
  round_.clear();
  tree_.clear();
  resident_count_ = 0;
  resident_bytes_ = 0;
  frames_left_ = 0;
  admit();
}

void CoveragePool::State::admit() {
  const auto bytes_of = [this](std::int32_t entry) {
    const std::uint64_t bytes = size_(episode(entry));
    require_fits_budget(episode(entry), bytes, options_.byte_budget);
    return bytes;
  };
  while (resident_count_ < static_cast<std::uint64_t>(options_.pool_size)) {
    const auto admission = pending_.take(options_.byte_budget - resident_bytes_, bytes_of);
    if (!admission) return;
    add_resident(*admission);
  }
}

void CoveragePool::State::add_resident(const PendingEpisodes::Admission& admission) {
  if (residents_.size() == slots_) give_away_empty_slots();
  const std::int32_t frames = frames_[static_cast<std::size_t>(admission.entry)];
  const auto count = static_cast<std::uint64_t>(frames);
  tree_.add(residents_.size(), count);
  residents_.push_back({admission.entry, frames, admission.bytes, generator_, {}});
  generator_.discard_shuffle(count);
  ++resident_count_;
  resident_bytes_ += admission.bytes;
  frames_left_ += count;
  if (recording_) changes_.push_back({episode(admission.entry), true, admission.bytes});
}

void CoveragePool::State::give_away_empty_slots() {
  std::vector<std::size_t> moved_to(residents_.size());
  std::size_t kept = 0;
  tree_.clear();
  for (std::size_t slot = 0; slot < residents_.size(); ++slot) {
    moved_to[slot] = kept;
    if (residents_[slot].left == 0) continue;
    tree_.add(kept, static_cast<std::uint64_t>(residents_[slot].left));
    if (kept != slot) residents_[kept] = std::move(residents_[slot]);
    ++kept;
  }
  residents_.erase(residents_.begin() + static_cast<std::ptrdiff_t>(kept), residents_.end());
  for (std::size_t& slot : round_) slot = moved_to[slot];
}

void CoveragePool::State::retire(Resident& resident) {
  resident.frames = {};
  --resident_count_;
  resident_bytes_ -= resident.bytes;
  if (recording_) changes_.push_back({episode(resident.entry), false, resident.bytes});
  admit();
  if (resident_count_ == 0) begin_epoch(epoch_ + 1);
}

// --- Selection ----------------------------------------------------------------------------------

void CoveragePool::State::begin_round() {
  for (std::size_t slot = 0; slot < residents_.size(); ++slot)
    if (residents_[slot].left > 0) round_.push_back(slot);
  generator_.shuffle(std::span(round_));
}

std::size_t CoveragePool::State::draw_slot() {
  if (options_.strategy == SamplingStrategy::kRemaining)
    return tree_.take(generator_.integers(frames_left_));
  if (round_.empty()) begin_round();
  const std::size_t slot = round_.back();
  round_.pop_back();
  return slot;
}

Anchor CoveragePool::State::next() {
  Resident& resident = residents_[draw_slot()];
  if (resident.frames.empty()) {
    resident.frames.resize(
        static_cast<std::size_t>(frames_[static_cast<std::size_t>(resident.entry)]));
    std::iota(resident.frames.begin(), resident.frames.end(), 0);
    resident.shuffle_from.shuffle(std::span(resident.frames));
  }
  --resident.left;
  --frames_left_;
  const Anchor anchor{episode(resident.entry),
                      resident.frames[static_cast<std::size_t>(resident.left)], epoch_,
                      position_++};
  if (resident.left == 0) retire(resident);
  return anchor;
}

// --- Skipping -----------------------------------------------------------------------------------

void CoveragePool::State::skip(std::int64_t samples) {
  if (samples < 0) fail("the samples to skip must not be negative, found {}", samples);
  if (samples == 0) return;
  const auto before = followed();
  changes_.clear();
  recording_ = false;
  const std::int64_t end = checked_add(position_, samples, "the position in the stream");
  if (end >= frames_per_epoch_) {
    begin_epoch(checked_add(epoch_, end / frames_per_epoch_, "the epoch of the stream"));
    samples = end % frames_per_epoch_;
  }
  replay(samples);
  recording_ = true;
  record_difference(before);
}

void CoveragePool::State::replay(std::int64_t samples) {
  if (options_.strategy == SamplingStrategy::kRemaining) return replay_remaining(samples);
  for (; samples > 0; --samples) {
    Resident& resident = residents_[draw_slot()];
    --frames_left_;
    ++position_;
    if (--resident.left == 0) retire(resident);
  }
}

void CoveragePool::State::replay_remaining(std::int64_t samples) {
  while (samples > 0) {
    // Up to the next departure, with the generator in registers.
    Pcg64 generator = generator_;
    std::uint64_t left = frames_left_;
    const std::uint64_t stop = left - std::min(left, static_cast<std::uint64_t>(samples));
    Resident* emptied = nullptr;
    while (left > stop && emptied == nullptr) {
      Resident& resident = residents_[tree_.take(generator.integers(left--))];
      if (--resident.left == 0) emptied = &resident;
    }
    const auto drawn = static_cast<std::int64_t>(frames_left_ - left);
    samples -= drawn;
    position_ += drawn;
    frames_left_ = left;
    generator_ = generator;
    if (emptied != nullptr) retire(*emptied);
  }
}

/// What the taker of the changes so far has in its set.
std::vector<CoveragePool::Change> CoveragePool::State::followed() const {
  std::vector<Change> set;
  for (const Resident& resident : residents_)
    if (resident.left > 0) set.push_back({episode(resident.entry), true, resident.bytes});
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
    if (change->admitted)
      std::erase_if(set, [&](const Change& c) { return c.episode == change->episode; });
    else
      set.push_back({change->episode, true, change->bytes});
  return set;
}

void CoveragePool::State::record_difference(const std::vector<Change>& before) {
  std::unordered_set<std::int64_t> had, have;
  for (const Change& change : before) had.insert(change.episode);
  for (const std::int64_t episode : residents()) have.insert(episode);
  for (const Change& change : before)
    if (!have.contains(change.episode)) changes_.push_back({change.episode, false, change.bytes});
  for (const Resident& resident : residents_)
    if (resident.left > 0 && !had.contains(episode(resident.entry)))
      changes_.push_back({episode(resident.entry), true, resident.bytes});
}

// --- Views --------------------------------------------------------------------------------------

std::vector<std::int64_t> CoveragePool::State::residents() const {
  std::vector<std::int64_t> result;
  for (const Resident& resident : residents_)
    if (resident.left > 0) result.push_back(episode(resident.entry));
  return result;
}

std::vector<std::int64_t> CoveragePool::State::upcoming(std::int64_t count) const {
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  auto entries = pending_.front(wanted);
  if (entries.size() < wanted && entries.size() + resident_count_ < episodes_.size()) {
    if (!next_order_) next_order_ = make_order(epoch_ + 1);
    std::unordered_set<std::int32_t> known(entries.begin(), entries.end());
    for (const Resident& resident : residents_)
      if (resident.left > 0) known.insert(resident.entry);
    for (const std::int32_t entry : next_order_->entries) {
      if (entries.size() == wanted) break;
      if (!known.contains(entry)) entries.push_back(entry);
    }
  }
  std::vector<std::int64_t> result;
  result.reserve(entries.size());
  for (const std::int32_t entry : entries) result.push_back(episode(entry));
  return result;
}

// --- CoveragePool -------------------------------------------------------------------------------

CoveragePool::CoveragePool(std::span<const std::int64_t> episodes, std::vector<std::int32_t> frames,
                           EpisodeBytes size, CoveragePoolOptions options)
    : state_(std::make_unique<State>(episodes, std::move(frames), std::move(size), options)) {}
CoveragePool::~CoveragePool() = default;
CoveragePool::CoveragePool(CoveragePool&&) noexcept = default;
CoveragePool& CoveragePool::operator=(CoveragePool&&) noexcept = default;

std::int64_t CoveragePool::frames_per_epoch() const { return state_->frames_per_epoch(); }
std::int64_t CoveragePool::epoch() const { return state_->epoch(); }
std::int64_t CoveragePool::position() const { return state_->position(); }
Anchor CoveragePool::next() { return state_->next(); }
void CoveragePool::skip(std::int64_t samples) { state_->skip(samples); }
std::vector<CoveragePool::Change> CoveragePool::take_changes() { return state_->take_changes(); }
std::vector<std::int64_t> CoveragePool::residents() const { return state_->residents(); }
std::uint64_t CoveragePool::resident_bytes() const { return state_->resident_bytes(); }
std::vector<std::int64_t> CoveragePool::upcoming(std::int64_t count) const {
  return state_->upcoming(count);
}

// --- Budget -------------------------------------------------------------------------------------

void require_fits_budget(std::int64_t episode, std::uint64_t bytes, std::uint64_t byte_budget) {
  if (bytes <= byte_budget) return;
  fail(
      "Episode {} requires {} bytes, exceeding the byte budget {} of its worker; raise "
      "--dataset.streaming_byte_budget_gb, which the workers of a rank share, or use fewer "
      "--num_workers (a smaller pool does not help: the episode does not fit alone)",
      episode, bytes, byte_budget);
}

void require_fit_budget(std::span<const std::int64_t> episodes, const EpisodeBytes& bound,
                        const EpisodeBytes& size, std::uint64_t byte_budget) {
  for (const std::int64_t episode : episodes)
    if (bound(episode) > byte_budget) require_fits_budget(episode, size(episode), byte_budget);
}

}  // namespace lerobot::streaming
