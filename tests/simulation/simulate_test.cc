// The program behind tools/simulate, as it is called.
#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::simulation {
namespace {

struct SimulateOutcome {
  int status = -1;
  std::string output;
};

// With what it prints to both; `arguments` are words for a shell.
SimulateOutcome run(const std::string& arguments) {
  SimulateOutcome outcome;
  FILE* const pipe = ::popen((std::string(IDETCD_SIMULATE) + " " + arguments).c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> part{};
  for (size_t size = 0; (size = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    outcome.output.append(part.data(), size);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Simulate, PrintsTheSameTwice) {
  const SimulateOutcome first = run("--from 4 --seeds 2 --trace 2>/dev/null");
  EXPECT_EQ(first.status, 0);
  EXPECT_NE(first.output.find("seed 5: "), std::string::npos);
  EXPECT_EQ(first.output, run("--from 4 --seeds 2 --trace --jobs 1 2>/dev/null").output);
}

TEST(Simulate, EtcdHasDefectsIfAsked) {
  const std::vector<std::string> defects{"answers reads with what was there before",
                                         "leases that have ended are confirmed", "and will lead on",
                                         "begin with older events"};
  const SimulateOutcome with = run("--defects --from 16 --seeds 10 --trace 2>/dev/null");
  const SimulateOutcome without = run("--seeds 5 --trace 2>/dev/null");
  EXPECT_EQ(with.status, 0);
  for (const std::string& defect : defects) {
    EXPECT_NE(with.output.find(defect), std::string::npos) << defect;
    EXPECT_EQ(without.output.find(defect), std::string::npos) << defect;
  }
}

TEST(Simulate, FoundsClustersTheSameTwice) {
  const SimulateOutcome first = run("--founding --seeds 10 --trace 2>/dev/null");
  EXPECT_EQ(first.status, 0);
  EXPECT_NE(first.output.find("is a member of "), std::string::npos);
  EXPECT_EQ(first.output, run("--founding --seeds 10 --trace --jobs 1 2>/dev/null").output);
}

TEST(Simulate, ReplaysOneSeedWithWhatHappened) {
  const SimulateOutcome all = run("--from 6 --seeds 2 2>/dev/null");
  const SimulateOutcome one = run("--seed 7 --trace 2>/dev/null");
  const std::string line = one.output.substr(0, one.output.find('\n') + 1);
  EXPECT_NE(line.find(" nodes, limit "), std::string::npos) << line;
  EXPECT_NE(line.find(" states, "), std::string::npos) << line;
  EXPECT_NE(all.output.find(line), std::string::npos) << all.output;
  EXPECT_NE(one.output.find("\nwhat happened last:\n "), std::string::npos) << one.output;
}

// The number in this row and column, of those behind the row's name.
double cell(const std::string& table, const std::string& row, int column) {
  std::istringstream numbers(table.substr(table.find("\n" + row + " ") + 1 + row.size()));
  double number = -1;
  for (int i = 0; i <= column; ++i) numbers >> number;
  return number;
}

TEST(Simulate, PrintsWhatAClusterCosts) {
  const SimulateOutcome outcome = run("--cost --nodes 30 2>/dev/null");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("; 0 losses\n"), std::string::npos) << outcome.output;
  EXPECT_EQ(cell(outcome.output, "grants", 0), 30) << outcome.output;
  EXPECT_EQ(cell(outcome.output, "grants", 1), 1) << outcome.output;
  EXPECT_EQ(cell(outcome.output, "grants", 2), 0) << outcome.output;
  EXPECT_NEAR(cell(outcome.output, "keepalives", 2), 2.0 / 20, 0.02) << "two a lease\n" << outcome.output;
  EXPECT_GT(cell(outcome.output, "bytes sent", 0), 30 * 30 * 50) << "each node learns each name\n" << outcome.output;
  EXPECT_EQ(outcome.output, run("--cost --nodes 30 2>/dev/null").output);
}

TEST(Simulate, SaysWhichArgumentIsWrong) {
  const struct {
    const char* arguments;
    const char* said;
  } cases[] = {
      {"--seed x", "--seed takes a number, from 0 on, and not 'x'"},
      {"--seeds", "--seeds takes a number, from 1 on, and not ''"},
      {"--seeds 0", "--seeds takes a number"},
      {"--nodes 10001", "--nodes takes a number, 1 to 10000, and not '10001'"},
      {"--founding --cost", "--cost is of nodes with an etcd"},
      {"--rate 100", "--rate goes with --cost"},
      {"--founding --relay 2", "--relay is of nodes with an etcd"},
      {"--cost --rate 0", "--rate takes a number, 1 to 1000000, and not '0'"},
      {"--defects --cost", "--defects are of an etcd with faults"},
      {"--founding --nodes 201", "there are 200 machines at most"},
      {"--founding --membership", "--founding and --membership are two worlds"},
      {"--jobs -1", "--jobs takes a number"},
      {"--speed 3", "there is no option '--speed'"},
      {"--seed 1 --seeds 2", "--seed goes with neither --seeds nor --from"},
      {"--from 3 --seed 1", "--seed goes with neither --seeds nor --from"},
      {"--from 18446744073709551615 --seeds 2", "there are no 2 seeds from 18446744073709551615 on"},
  };
  for (const auto& test : cases) {
    const SimulateOutcome outcome = run(std::string(test.arguments) + " 2>&1");
    EXPECT_EQ(outcome.status, 2) << test.arguments;
    EXPECT_NE(outcome.output.find(test.said), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("usage: "), std::string::npos) << outcome.output;
  }
}

TEST(Simulate, PrintsItsUsageWhenAsked) {
  const SimulateOutcome outcome = run("--help 2>/dev/null");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output.find("usage: "), 0u) << outcome.output;
}

TEST(Simulate, OutputThatIsLostIsAFailure) {
  const SimulateOutcome outcome = run("--seed 7 2>&1 >/dev/full");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.output.find("the output cannot be written"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace idetcd::simulation
