#include "lerobot/base/random.h"

#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"

namespace lerobot {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::uint32_t>;

struct SeedCase {
  std::vector<std::uint64_t> entropy;
  Words state;  // numpy.random.SeedSequence(entropy).generate_state(6)
  std::uint64_t first;
};

TEST(Random, SeedSequenceGivesNumpysWords) {
  const SeedCase cases[] = {
      {{0},
       {2968811710, 3677149159, 745650761, 2884920346, 2642120001, 549907821},
       15793235383387715774u},
      {{1},
       {1835504127, 1731038949, 1320224556, 2330041505, 321059914, 1226144109},
       7434755675892716031u},
      {{1000, 0},
       {2989689681, 4191542321, 2529548519, 3619692248, 327553172, 2898895421},
       18002537191484623697u},
      {{2147483653, 7},
       {1038549916, 1240085030, 1524536509, 3432557527, 4339961, 1966676325},
       5326124649147728796u},
      {{1099511627783, 1},
       {2803427941, 2776009154, 4101157631, 2474223908, 3738472425, 808975123},
       11922868532630055525u},
      {{18446744073709551615u, 18446744073709551615u},
       {819991049, 2207585912, 3432630979, 2227233661, 4152944705, 3544128466},
       9481509295970325001u},
      {{1, 2, 3, 4, 5, 6},
       {488360481, 3956080669, 2986500235, 3488252836, 3841783222, 2602687873},
       16991237094181161505u},
  };
  for (const SeedCase& c : cases) {
    const SeedSequence sequence(c.entropy);
    EXPECT_EQ(sequence.generate_state(6), c.state);
    EXPECT_EQ(sequence.generate_uint64(), c.first);
  }
}

// Everything about Pcg64 is what numpy 2.2.6 answers for the same calls.

TEST(Random, Pcg64GivesTheRawOutputsOfDefaultRng) {
  struct Case {
    std::uint64_t seed, epoch;
    std::vector<std::uint64_t> raw;
  };
  const Case cases[] = {
      {42, 0, {0xc621fbcd16d92688, 0x705a5661a791ffc1, 0xdbcd12c26eda1624, 0xb286b60e1600888d}},
      {1000, 0, {0x857989253426fdaf, 0x9a956118d932230d, 0x788fa441d18beed0, 0x34080ea2356c3afb}},
      {1099511627783,
       3,
       {0x9e6592b891c488c9, 0x55450b54052ded62, 0x914f90691b14cae9, 0x60b7afcde46de772}},
      {0, 0, {0xa30febcfd9c2825f, 0x4510bdf882d9d721, 0x0a7d3da94ecde8b8, 0x43b27b61342f01d}},
  };
  for (const Case& c : cases) {
    Pcg64 generator(c.seed, c.epoch);
    for (const std::uint64_t raw : c.raw) EXPECT_EQ(generator.next64(), raw);
  }
}

TEST(Random, Pcg64IntegersTakeThe32Or64BitPathOfTheirRange) {
  Pcg64 generator(1000, 5);
  const std::uint64_t one = 1;
  const std::uint64_t ranges[] = {1,
                                  10,
                                  (one << 32) - 1,
                                  one << 32,
                                  (one << 32) + 1,
                                  (one << 40) + 3,
                                  3,
                                  one << 63,
                                  7,
                                  (one << 31) + 1,
                                  (one << 31) + 1,
                                  (one << 31) + 1,
                                  2};
  std::vector<std::uint64_t> drawn;
  for (const std::uint64_t n : ranges) drawn.push_back(generator.integers(n));
  EXPECT_THAT(drawn, ElementsAre(0, 8, 1932597298, 2240147767, 715108307, 390634598040, 0,
                                 2039105506799195311, 1, 70642550, 1861350511, 1104417951, 1));
}

TEST(Random, Pcg64RejectsUnevenDrawsAsNumpyDoes) {
  // Three draws of ten are rejected for this range.
  Pcg64 generator(7, 11);
  std::uint64_t dot = 0;
  for (std::uint64_t i = 1; i <= 1000; ++i) dot += generator.integers(3000000001) * i;
  EXPECT_EQ(dot, 749966131626753);
}

TEST(Random, Pcg64KeepsTheHighHalfAcross64BitDraws) {
  Pcg64 generator(1000, 7);
  EXPECT_EQ(generator.integers(1000), 477u);
  EXPECT_EQ(generator.next64(), 0xdddd5aed03bc8772);
  EXPECT_EQ(generator.integers(1000), 214u);
  EXPECT_EQ(generator.integers(1000), 941u);
  EXPECT_EQ(generator.integers(std::uint64_t{1} << 40), 857100732006u);
}

TEST(Random, Pcg64ShufflesAsNumpyAndLeavesTheGeneratorWhereNumpyLeavesIt) {
  struct Case {
    std::size_t size;
    std::vector<std::int64_t> first;  // at most 17 of the shuffled 0, 1, 2, ...
    std::int64_t dot;
    std::uint64_t integer, raw;  // integers(2^20), then the next raw output
  };
  const Case cases[] = {
      {0, {}, 0, 500629, 0xdddd5aed03bc8772},
      {1, {0}, 0, 500629, 0xdddd5aed03bc8772},
      {2, {0, 1}, 1, 225078, 0xdddd5aed03bc8772},
      {3, {0, 2, 1}, 4, 15304, 0xf4302a9ff11da42e},
      {17,
       {5, 3, 14, 7, 4, 1, 9, 8, 10, 11, 0, 12, 6, 15, 2, 16, 13},
       1237,
       642348,
       0x69178ba5f79f6c85},
      {1000,
       {201, 359, 181, 635, 490, 543, 297, 865, 938, 961, 310, 480, 472, 526, 349, 733, 966},
       251908051,
       729374,
       0xa1acd5ee220226cb},
  };
  for (const Case& c : cases) {
    Pcg64 generator(1000, 7), dry(1000, 7);
    std::vector<std::int64_t> values(c.size);
    std::iota(values.begin(), values.end(), 0);
    generator.shuffle(std::span(values));
    dry.discard_shuffle(c.size);
    EXPECT_EQ(generator, dry);
    std::int64_t dot = 0;
    for (std::size_t i = 0; i < c.size; ++i) dot += values[i] * static_cast<std::int64_t>(i);
    EXPECT_EQ(dot, c.dot);
    values.resize(c.first.size());
    EXPECT_EQ(values, c.first);
    EXPECT_EQ(generator.integers(std::uint64_t{1} << 20), c.integer);
    EXPECT_EQ(generator.next64(), c.raw);
  }
}

TEST(Random, Mt19937GivesNumpysWordsAcrossARefill) {
  // numpy.random.RandomState(seed).randint(0, 2**32, dtype=uint32)
  Mt19937 generator(12345);
  EXPECT_EQ(generator.position(), Mt19937::kWords);
  Words words(2000);
  for (auto& word : words) word = generator.next();
  EXPECT_THAT(Words(words.begin(), words.begin() + 5),
              ElementsAre(3992670690u, 3823185381u, 1358822685u, 561383553u, 789925284u));
  EXPECT_THAT(Words(words.begin() + 623, words.begin() + 626),
              ElementsAre(2940097750u, 3957348375u, 3514278914u));
  EXPECT_EQ(words.back(), 3374551203u);
  EXPECT_EQ(generator.position(), 2000 % Mt19937::kWords);

  Mt19937 largest(0xffffffff);
  EXPECT_EQ(largest.next(), 419326371u);
  EXPECT_EQ(largest.next(), 479346978u);
}

TEST(Random, EpochSeedsAndPermutationsAreThoseOfLeRobot) {
  const Json oracle = read_json_file(LEROBOT_TEST_DATA "/oracles/sampler_oracle.json");
  ASSERT_FALSE(oracle["permutations"].empty());
  for (const Json& c : oracle["permutations"]) {
    const auto seed = epoch_seed(c["seed"].get<std::uint64_t>(), c["epoch"].get<std::uint64_t>());
    EXPECT_EQ(std::to_string(seed), c["epoch_seed_u64"].get<std::string>());
    EXPECT_EQ(torch_randperm(c["n"].get<std::int64_t>(), seed),
              c["perm"].get<std::vector<std::int64_t>>());
  }
}

TEST(Random, LongerPermutationsAreThoseOfTorch) {
  const std::uint64_t seed = (std::uint64_t{1} << 40) + 7;
  const auto dot = [](const std::vector<std::int64_t>& order) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < order.size(); ++i) sum += order[i] * static_cast<std::int64_t>(i);
    return sum;
  };
  auto order = torch_randperm(1000, seed);
  EXPECT_EQ(dot(order), 251046965);
  order.resize(6);
  EXPECT_THAT(order, ElementsAre(615, 284, 599, 580, 347, 92));

  order = torch_randperm(100003, seed);
  EXPECT_EQ(dot(order), 249696369754885);
  order.resize(6);
  EXPECT_THAT(order, ElementsAre(31784, 94367, 92227, 75289, 72116, 19382));
}

TEST(Random, ShuffleAppliesThePermutationToAnyValues) {
  std::vector<std::int64_t> values(43);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1000 - 7 * static_cast<std::int64_t>(i);
  const auto before = values;
  torch_shuffle(values, 5);
  const auto order = torch_randperm(43, 5);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], before[static_cast<std::size_t>(order[i])]);
}

TEST(Random, PermutationsOfNothingAndOfANegativeLength) {
  EXPECT_TRUE(torch_randperm(0, 1).empty());
  EXPECT_THAT(torch_randperm(1, 1), ElementsAre(0));
  EXPECT_THROW(torch_randperm(-1, 1), Error);
}

// From 2^32 / 20 values on torch draws 64 bits a value. 1.7 GB and half a minute: by hand, with
// --gtest_also_run_disabled_tests. Expected: torch.randperm(214748364,
// generator=torch.Generator().manual_seed(18002537191484623697)).
TEST(Random, DISABLED_PermutationsOfHugeDatasetsAreThoseOfTorch) {
  const std::uint64_t seed = epoch_seed(1000, 0);
  std::int64_t n = (std::int64_t{1} << 32) / 20 - 1;
  auto order = torch_randperm(n, seed);
  EXPECT_THAT(std::vector<std::int64_t>(order.begin(), order.begin() + 4),
              ElementsAre(54559374, 178515925, 199110126, 74571113));
  EXPECT_THAT(std::vector<std::int64_t>(order.end() - 3, order.end()),
              ElementsAre(194287870, 210514391, 12561397));
  order = torch_randperm(n + 1, seed);
  EXPECT_THAT(std::vector<std::int64_t>(order.begin(), order.begin() + 4),
              ElementsAre(183549788, 87741380, 209714366, 80958157));
  EXPECT_THAT(std::vector<std::int64_t>(order.end() - 3, order.end()),
              ElementsAre(39958313, 85901936, 123297207));
}

}  // namespace
}  // namespace lerobot
