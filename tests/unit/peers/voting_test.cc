#include "peers/voting.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <thread>

#include "../etcd/client_fixture.h"
#include "base/text.h"
#include "net/local_addresses.h"
#include "peers/certificates.h"
#include "peers/etcd_child.h"
#include "support/captured_stdout.h"
#include "support/temporary_directory.h"

namespace idetcd::peers {
namespace {

using namespace std::chrono_literals;
using etcd::BlockingClient;
using SteadyClock = std::chrono::steady_clock;

// A machine's helper process: it dies with its machine. Forked before main(), while the process has one thread.
std::vector<std::shared_ptr<sandbox::ProgramRunner>> makeHelpers() {
  std::vector<std::shared_ptr<sandbox::ProgramRunner>> helpers;
  setenv("ETCD_NAME", "of-another-etcd", 1);  // which the machines' own does not read
  for (int i = 0; i < 48; ++i) helpers.push_back(sandbox::ProgramRunner::make(sandbox::Mode::kOff).value());
  unsetenv("ETCD_NAME");
  return helpers;
}
std::vector<std::shared_ptr<sandbox::ProgramRunner>> voting_helpers = makeHelpers();

FileDescriptor bound(const SocketAddress& address) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage storage;
  const socklen_t length = address.toSockaddr(&storage);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length), 0);
  return socket;
}
SocketAddress addressOf(const FileDescriptor& socket) {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  auto* const name = reinterpret_cast<sockaddr*>(&storage);
  EXPECT_EQ(::getsockname(socket.get(), name, &length), 0);
  return SocketAddress::fromSockaddr(name).value();
}

std::string votingUuid(int number) { return fmt::format("00000000-0000-4000-9000-{:012}", number); }

// Machines 1, 2, … of one cluster; each test program has a /24 of the loopback network to itself.
class VotingTest : public testing::Test {
 protected:
  ~VotingTest() override { machines_.clear(); }

  static SocketAddress address(int number) {
    const int pid = ::getpid();
    return {IpAddress::v4({127, static_cast<uint8_t>(1 + (pid >> 8) % 254), static_cast<uint8_t>(pid),
                           static_cast<uint8_t>(number)}),
            2390};
  }
  std::string directory(int number) const { return directory_ / fmt::format("{}", number); }

  founding::Value founded(int voters) const {
    founding::Value value{.cluster = "11111111-0000-4000-8000-000000000000", .members = {}, .voters = {}};
    for (int i = 1; i <= voters; ++i) {
      value.members.push_back({i, votingUuid(i)});
      value.voters.push_back({votingUuid(i), address(i)});
    }
    return value;
  }

  struct Running {
    std::unique_ptr<etcd::CompletionThread> thread = etcd::CompletionThread::make().value();
    std::shared_ptr<Executor> executor = std::make_shared<Executor>();
    metrics::Registry metrics;
    std::shared_ptr<sandbox::ProgramRunner> helper;
    std::unique_ptr<Voting> voting;
    std::atomic<bool> reached = true;
    FileDescriptor peers_port;  // others see by it that the machine is there
    ~Running() {
      voting.reset();
      thread->stop();
      EXPECT_TRUE(executor->finish(60s));  // its work posts to the thread
    }
  };

  Voting::Options options(int number, int founders) {
    Voting::Options options;
    options.cluster = founded(founders);
    options.uuid = votingUuid(number);
    options.address = address(number);
    options.start = number;
    options.durable = true;
    options.directory = directory(number);
    options.secret = founding::Secret::parse("a secret of sixteen bytes or more").value();
    return options;
  }
  void start(int number, int founders) { start(number, options(number, founders)); }
  void start(int number, Voting::Options options) {
    auto machine = std::make_unique<Running>();
    ASSERT_FALSE(voting_helpers.empty());
    machine->helper = std::move(voting_helpers.back());
    voting_helpers.pop_back();
    machine->peers_port = bound(options.address);
    ASSERT_EQ(::listen(machine->peers_port.get(), 4096), 0);  // nobody accepts
    options.programs = machine->helper;
    options.executor = machine->executor;
    options.metrics = machine->metrics.scope();
    options.on_voters = [this, number](std::vector<founding::Voter> voters) {
      const std::lock_guard lock(mutex_);
      voters_[number] = std::move(voters);
    };
    options.on_reach = [running = machine.get()](bool reached) { running->reached = reached; };
    machine->voting = std::make_unique<Voting>(*machine->thread, std::move(options), log_);
    machine->voting->start();
    machines_[number] = std::move(machine);
  }
  std::vector<pid_t> etcdsOf(int number) const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto pid = parseNumber<pid_t>(entry.path().filename().string());
      std::ifstream file(entry.path() / "cmdline");
      const std::string command{std::istreambuf_iterator<char>(file), {}};
      if (pid && command.find("--data-dir=" + directory(number) + "/") != std::string::npos) found.push_back(*pid);
    }
    return found;
  }
  // As by the loss of power: no hand-over, and whatever ran is gone.
  void kill(int number) {
    machines_.at(number)->thread->stop();  // no call is made any more
    machines_.erase(number);
  }
  void stop(int number) { machines_.erase(number); }

  // A client as nodes have it, of the endpoints that `number` gives.
  BlockingClient client(int number, std::chrono::milliseconds call_timeout = 30s) {
    etcd::Client::Options options = etcd::optionsFor({});
    options.tls = tlsFilesIn(directory(number) + "/tls");
    const std::lock_guard lock(mutex_);
    for (const founding::Voter& voter : voters_.at(number))
      options.endpoints.push_back(clientEndpoint(voter.address, true));
    options.call_timeout = call_timeout;
    return BlockingClient(std::move(options));
  }

  // Asks `number` until `holds`. Returns how long that took.
  template <typename Condition>
  std::chrono::milliseconds await(int number, Condition holds, std::chrono::seconds limit = 120s) {
    const auto begin = SteadyClock::now();
    Voting::Status status;
    while (SteadyClock::now() - begin < limit) {
      status = machines_.at(number)->voting->status(3s);
      if (holds(status)) return std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - begin);
      std::this_thread::sleep_for(20ms);
    }
    ADD_FAILURE() << "machine " << number << ": role " << static_cast<int>(status.role) << ", " << status.voters.size()
                  << " voters, " << status.going_on << ", " << status.problem;
    return limit;
  }
  // All of these vote, and no other.
  static auto vote(std::set<int> numbers) {
    return [numbers](const Voting::Status& status) {
      std::set<std::string> expected;
      for (const int number : numbers) expected.insert(votingUuid(number));
      std::set<std::string> found;
      for (const Voting::VoterStatus& one : status.voters) {
        if (one.answers && !one.voter.learner) found.insert(one.voter.uuid);
      }
      return found == expected && status.voters.size() == numbers.size();
    };
  }
  static auto standBy(std::set<int> numbers) {
    return [numbers](const Voting::Status& status) {
      return std::ranges::all_of(numbers, [&status](int number) {
        const auto machine = std::ranges::find(status.machines, votingUuid(number), &Machine::uuid);
        return machine != status.machines.end() && machine->stands_by;
      });
    };
  }
  int leader(int asked) {
    int found = 0;
    await(asked, [&found](const Voting::Status& status) {
      for (const Voting::VoterStatus& one : status.voters) {
        if (one.leads) found = std::stoi(one.voter.uuid.substr(24));
      }
      return found != 0;
    });
    return found;
  }

  const TemporaryDirectory directory_;
  Logger log_ = std::getenv("VOTING_LOG") != nullptr ? Logger::toStdout() : Logger();
  std::mutex mutex_;
  std::map<int, std::vector<founding::Voter>> voters_;
  std::map<int, std::unique_ptr<Running>> machines_;
};

TEST_F(VotingTest, AFounderThatHasForgottenItsPromiseIsAddedAnew) {
  start(1, 3);
  start(2, 3);
  Voting::Options forgetful = options(3, 3);
  forgetful.promised = false;
  start(3, std::move(forgetful));
  await(1, vote({1, 2, 3}));
  EXPECT_FALSE(std::filesystem::exists(directory(3) + "/" + founded(3).cluster + "/etcd/founding"));
}

// As a loss of power leaves it while the data is being deleted.
TEST_F(VotingTest, DataThatIsDeletedHalfwayIsNoData) {
  const std::string cluster = directory(3) + "/" + founded(3).cluster;
  std::filesystem::create_directories(cluster + "/etcd.removed/founding/member");
  std::ofstream(cluster + "/started").close();
  for (int i = 1; i <= 3; ++i) start(i, 3);
  await(1, vote({1, 2, 3}));
  EXPECT_FALSE(std::filesystem::exists(cluster + "/etcd.removed"));
  EXPECT_FALSE(std::filesystem::exists(cluster + "/etcd/founding")) << "it was added anew";
}

TEST_F(VotingTest, TheProgramMayBeInstalledLater) {
  const std::string program = directory_ / "etcd";
  Voting::Options without = options(1, 1);
  without.program = program;
  start(1, std::move(without));
  await(1, [](const Voting::Status& status) { return status.problem.find("install") != std::string::npos; });
  std::filesystem::create_symlink("/usr/bin/etcd", program);
  await(1, vote({1}));
}

TEST_F(VotingTest, ADeadLeaderIsReplacedAndStandsByWhenItIsBack) {
  for (int i = 1; i <= 4; ++i) start(i, 3);
  await(4, vote({1, 2, 3}));
  await(4, standBy({4}));
  const int dead = leader(4);
  std::set<int> voters{1, 2, 3, 4};
  voters.erase(dead);
  auto etcd = client(4);
  const int64_t begun = etcd.put("k", "v").value();

  kill(dead);
  const auto begin = SteadyClock::now();
  while (!etcd.put("k", "w")) {
  }
  const auto written = SteadyClock::now() - begin;
  const auto replaced = await(4, vote(voters)) + written;
  RecordProperty("ms_to_next_write", static_cast<int>(written / 1ms));
  RecordProperty("ms_to_replacement", static_cast<int>(replaced / 1ms));
  EXPECT_EQ(etcd.value("k"), "w");

  // One change at a time: each state that was published differs from the one before by one voter.
  const auto watch = etcd.watch(etcd::KeyRange::single(std::string(kVotersKey)), begun);
  ASSERT_TRUE(etcd::succeeded(watch));
  std::optional<Published> before;
  bool seen_four = false;
  while (!before || before->change || !seen_four) {
    const auto batch = etcd.next(*watch, 20s);
    ASSERT_TRUE(etcd::succeeded(batch));
    for (const auto& event : batch->events) {
      const auto state = decodePublished(event.kv.value);
      ASSERT_TRUE(state) << event.kv.value;
      EXPECT_LE(std::ranges::count(state->voters, true, &Voter::learner), 1);
      EXPECT_LE(before ? std::abs(std::ssize(state->voters) - std::ssize(before->voters)) : 0, 1);
      seen_four = seen_four || state->voters.size() == 4;
      before = state;
    }
  }

  start(dead, 3);
  await(4, standBy({dead}));
  await(4, vote(voters));
  EXPECT_FALSE(std::filesystem::exists(fmt::format("{}/{}/etcd", directory(dead), founded(3).cluster)))
      << "its data is void";
  EXPECT_GT(test_support::sumOf(machines_.at(4)->metrics, "idetcd_peers_etcd_starts_total"), 0);
}

TEST_F(VotingTest, AllThatAreStartedAgainHaveTheirData) {
  for (int i = 1; i <= 3; ++i) start(i, 3);
  await(1, vote({1, 2, 3}));
  ASSERT_TRUE(etcd::succeeded(client(1).put("k", "v")));
  const uint64_t cluster_id = client(1).range(etcd::KeyRange::single("k"))->cluster_id;
  for (int i = 1; i <= 3; ++i) kill(i);
  for (int i = 1; i <= 3; ++i) start(i, 3);
  await(1, vote({1, 2, 3}));
  auto etcd = client(1);
  EXPECT_EQ(etcd.value("k"), "v");
  EXPECT_EQ(etcd.range(etcd::KeyRange::single("k"))->cluster_id, cluster_id);

  // Orderly, one hands over and goes.
  const int leading = leader(1);
  const auto begin = SteadyClock::now();
  stop(leading);
  EXPECT_LT(SteadyClock::now() - begin, 120s) << "of one second that it has";
  while (!etcd.put("k", "w")) {
  }
  // It comes back at another address.
  Voting::Options moved = options(leading, 3);
  moved.address = address(9);
  start(leading, std::move(moved));
  await(leading, [&](const Voting::Status& status) {
    return vote({1, 2, 3})(status) && std::ranges::any_of(status.voters, [](const Voting::VoterStatus& one) {
             return one.voter.address == address(9);
           });
  });
}

TEST_F(VotingTest, AVoterEndsInTimeThoughEveryEtcdStandsStill) {
  for (int i = 1; i <= 3; ++i) start(i, 3);
  await(1, vote({1, 2, 3}));
  for (int i = 1; i <= 3; ++i) {
    for (const pid_t etcd : etcdsOf(i)) EXPECT_EQ(::kill(etcd, SIGSTOP), 0);
  }
  EXPECT_TRUE(machines_.at(1)->voting->stop(5s)) << "1 s, and the end of a program";
  EXPECT_TRUE(etcdsOf(1).empty());
}

// Without a state, each start is another machine, whose key outlives it for a while.
TEST_F(VotingTest, AMachineThatIsStartedAnewVotesThoughItsKeysOfBeforeAreThere) {
  for (int i = 1; i <= 3; ++i) start(i, 3);
  await(1, vote({1, 2, 3}));
  Machine between{.uuid = votingUuid(7), .address = address(3), .start = 4, .durable = true, .stands_by = true};
  ASSERT_TRUE(etcd::succeeded(client(1).put(std::string(kMachinesPrefix) + between.uuid, encode(between))));
  kill(3);
  Voting::Options anew = options(8, 3);
  anew.address = address(3);
  start(8, std::move(anew));
  RecordProperty("ms", static_cast<int>(await(1, vote({1, 2, 8})).count()));
  EXPECT_FALSE(std::filesystem::exists(directory(7)));
}

TEST_F(VotingTest, MoreVoteAsSoonAsThereAreEnoughMachines) {
  start(1, 1);
  await(1, vote({1}));
  auto etcd = client(1);
  // The oldest that stands by, but its key is all that is left of it.
  Machine gone{.uuid = votingUuid(7), .address = address(7), .start = 4, .durable = true, .stands_by = true};
  const int64_t begun = etcd.put(std::string(kMachinesPrefix) + gone.uuid, encode(gone)).value();
  start(8, 1);
  start(9, 1);
  RecordProperty("ms", static_cast<int>(await(1, vote({1, 8, 9})).count()));
  const auto watch = etcd.watch(etcd::KeyRange::single(std::string(kVotersKey)), begun);
  ASSERT_TRUE(etcd::succeeded(watch));
  for (std::optional<Published> state; !state || state->change || state->voters.size() < 3;) {
    const auto batch = etcd.next(*watch, 20s);
    ASSERT_TRUE(etcd::succeeded(batch));
    for (const auto& event : batch->events) {
      state = decodePublished(event.kv.value);
      ASSERT_TRUE(state) << event.kv.value;
      EXPECT_EQ(std::ranges::find(state->voters, gone.uuid, &Voter::uuid), state->voters.end());
    }
  }
}

// As when an etcd that stood still answers with what was published before.
TEST_F(VotingTest, AVoterThatIsNotPublishedKeepsItsDataWhileEtcdHasIt) {
  for (int i = 1; i <= 3; ++i) start(i, 3);
  await(1, vote({1, 2, 3}));
  const int missing = leader(1) == 3 ? 2 : 3;
  const std::string data = fmt::format("{}/{}/etcd/founding/member", directory(missing), founded(3).cluster);
  const auto made = std::filesystem::last_write_time(data);
  auto etcd = client(1);
  const auto published = [&etcd] { return decodePublished(etcd.value(std::string(kVotersKey)).value()).value(); };
  const auto starts = [&] {
    return test_support::sumOf(machines_.at(missing)->metrics, "idetcd_peers_etcd_starts_total");
  };
  EXPECT_TRUE(eventually([&] { return starts() == 1; }));
  const Published before = published();
  Published without = before;
  std::erase_if(without.voters, [&](const Voter& voter) { return voter.uuid == votingUuid(missing); });
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(etcd::succeeded(etcd.put(std::string(kVotersKey), encode(without))));
    EXPECT_TRUE(eventually([&] { return published() == before; })) << "the leader publishes it again";
  }
  await(missing, vote({1, 2, 3}));
  ASSERT_TRUE(std::filesystem::exists(data));
  EXPECT_EQ(std::filesystem::last_write_time(data), made);
  EXPECT_EQ(starts(), 1);
}

TEST_F(VotingTest, OneOfThreeGoesOnAloneByAnOperatorsHand) {
  Voting::Options first = options(1, 3);
  first.leases_end = 40s;
  start(1, std::move(first));
  start(2, 3);
  start(3, 3);
  await(1, vote({1, 2, 3}));
  ASSERT_TRUE(etcd::succeeded(client(1).put("k", "v")));
  await(1, [this](const auto&) { return client(1).value("k").has_value(); });
  const auto refusal = [this](int number) {
    const auto recovered = machines_.at(number)->voting->recover().get();
    return recovered ? "" : recovered.error().message;
  };
  for (int i = 1; i <= 3; ++i) await(i, vote({1, 2, 3}));
  for (int i = 1; i <= 3; ++i) EXPECT_NE(refusal(i).find("nothing is lost"), std::string::npos) << i;
  await(1, vote({1, 2, 3}));
  kill(2);
  kill(3);
  EXPECT_TRUE(eventually([this] { return !machines_.at(1)->reached; }));
  EXPECT_FALSE(client(1, 1s).put("k", "w"));
  EXPECT_NE(refusal(1).find("owners may still hold names"), std::string::npos);
  const auto may_go_on = [&] { return refusal(1).find("owners may still hold names") == std::string::npos; };
  ASSERT_TRUE(eventually(may_go_on, 120s)) << refusal(1);
  await(1, vote({1}));
  EXPECT_EQ(client(1).value("k"), "v");
  EXPECT_TRUE(eventually([this] { return machines_.at(1)->reached.load(); }));
  start(2, 3);  // whose data is void
  await(1, standBy({2}));
  await(1, vote({1}));
  EXPECT_EQ(client(1).value("k"), "v");
}

// A machine of three whose other two are gone.
class RecoveryTest : public VotingTest {
 protected:
  void loseTwoOfThree(const std::string& program) {
    Voting::Options first = options(1, 3);
    first.leases_end = 0s;
    first.program = program;
    start(1, std::move(first));
    start(2, 3);
    start(3, 3);
    await(1, vote({1, 2, 3}));
    kill(2);
    kill(3);
    ASSERT_TRUE(eventually([this] { return !machines_.at(1)->reached; }, 60s));
  }
  Voting& left() { return *machines_.at(1)->voting; }
};

TEST_F(RecoveryTest, AnEtcdThatEndsMeanwhileIsForcedOnceMore) {
  const std::string program = directory_ / "etcd";
  std::ofstream(program) << "#!/bin/sh\ncase \"$*\" in *--force-new-cluster*) [ -e " << program << ".ended ] || { : >"
                         << program << ".ended; exit 1; };; esac\nexec etcd \"$@\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  loseTwoOfThree(program);
  const auto recovered = left().recover().get();
  EXPECT_TRUE(recovered.has_value()) << recovered.error().message;
  EXPECT_TRUE(std::filesystem::exists(program + ".ended"));
  await(1, vote({1}));
}

TEST_F(RecoveryTest, TheEndOfTheServerDoesNotWaitForAnEtcdThatStandsStill) {
  loseTwoOfThree("etcd");
  const std::vector<pid_t> etcds = etcdsOf(1);
  ASSERT_EQ(etcds.size(), 1);
  ::kill(etcds.front(), SIGSTOP);
  auto recovery = left().recover();
  // Its etcd is being ended.
  ASSERT_TRUE(eventually([this] { return left().status(100ms).role == Voting::Role::kStandsBy; }, 60s));
  EXPECT_TRUE(left().stop(5s));
  EXPECT_FALSE(recovery.get());
}

// Those that start beside each other wait for each other, seconds in all.
TEST_F(VotingTest, TheFirstEtcdOfAFoundingAnswersBeforeTheOthersStart) {
  const std::string program = directory_ / "etcd";
  const std::string starts = directory_ / "starts";
  std::ofstream(program) << "#!/bin/sh\necho \"$1\" >>" << starts << "\nexec etcd \"$@\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  for (const int number : {2, 3, 1}) {
    Voting::Options founder = options(number, 3);
    founder.program = program;
    founder.first_patience = 120s;
    start(number, std::move(founder));
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory(number) + "/tls/key.pem"); }));
  }
  await(1, vote({1, 2, 3}));
  std::string first;
  std::getline(std::ifstream(starts), first);
  EXPECT_EQ(first, "--name=" + votingUuid(1));
}

TEST_F(VotingTest, AFoundingDoesWithoutTheFirstEtcd) {
  for (const int number : {2, 3}) start(number, 3);
  await(2, [](const Voting::Status& status) { return status.role == Voting::Role::kVotes; });
}

TEST_F(VotingTest, AMachineThatHasNotVotedDoesNotGoOnAlone) {
  Voting::Options learner = options(4, 3);
  learner.leases_end = 0s;
  std::filesystem::create_directories(fmt::format("{}/{}/etcd/1234", directory(4), founded(3).cluster));
  start(4, std::move(learner));
  ASSERT_TRUE(eventually([this] { return !machines_.at(4)->reached; }, 60s));
  const auto recovered = machines_.at(4)->voting->recover().get();
  EXPECT_TRUE(!recovered && recovered.error().message.find("does not vote") != std::string::npos);
}

TEST_F(VotingTest, AFullStoreIsMadeToTakeWritesAgain) {
  Voting::Options small = options(1, 1);
  small.quota_bytes = 200'000;
  const std::string logged = captured([&] {
    log_ = Logger::toStdout();
    start(1, std::move(small));
    await(1, vote({1}));
    auto etcd = client(1);
    const std::string much(20000, 'x');
    while (!etcd::failedWith(etcd.put("k", much), ErrorCode::kNoSpace)) {
    }
    while (!etcd.put("k", "v")) std::this_thread::sleep_for(50ms);
    machines_.clear();
    log_ = Logger();
  });
  const size_t first = logged.find("etcd is full");
  EXPECT_NE(first, std::string::npos) << logged;
  EXPECT_EQ(logged.find("etcd is full", first + 1), std::string::npos) << "its alarm went off before there was space";
}

TEST_F(VotingTest, WithoutEtcdOnTheMachineItSaysWhatToInstall) {
  Voting::Options without = options(1, 1);
  without.program = "etcd-of-no-machine";
  start(1, std::move(without));
  await(1,
        [](const Voting::Status& status) { return status.problem.find("install etcd-server") != std::string::npos; });
  EXPECT_EQ(machines_.at(1)->voting->status(3s).role, Voting::Role::kStandsBy);
}

TEST_F(VotingTest, AVoterWhoseAddressChangesVotesOn) {
  start(1, 1);
  await(1, vote({1}));
  ASSERT_TRUE(etcd::succeeded(client(1).put("k", "v")));
  stop(1);
  Voting::Options moved = options(1, 1);
  moved.address = address(9);
  start(1, std::move(moved));
  await(1, [](const Voting::Status& status) {
    return status.voters.size() == 1 && status.voters[0].answers && status.voters[0].voter.address == address(9);
  });
  EXPECT_EQ(client(1).value("k"), "v");
}

TEST(IsServed, WhoListensAndAnswersNothingIsNot) {
  const FileDescriptor listener = bound({IpAddress::v4({127, 0, 0, 1}), 0});
  const SocketAddress address = addressOf(listener);
  EXPECT_FALSE(isServed(address, 60s)) << "refused";
  ASSERT_EQ(::listen(listener.get(), 10), 0);
  EXPECT_FALSE(isServed(address, 50ms));
  std::thread server([&listener] {
    FileDescriptor(::accept(listener.get(), nullptr, nullptr));  // the one of before
    FileDescriptor(::accept(listener.get(), nullptr, nullptr));
  });
  EXPECT_TRUE(isServed(address, 60s));
  server.join();
}

TEST(UnservedOf, ThoseAtWhichNobodyTakesAConnection) {
  const FileDescriptor taking = bound({IpAddress::v4({127, 0, 0, 1}), 0});
  const FileDescriptor refusing = bound({IpAddress::v4({127, 0, 0, 1}), 0});
  ASSERT_EQ(::listen(taking.get(), 10), 0);
  EXPECT_EQ(unservedOf({addressOf(refusing), addressOf(taking)}, 60s), std::set{addressOf(refusing)});
  EXPECT_EQ(unservedOf({}, 60s), std::set<SocketAddress>());
  // Full: it takes no connection any more, and refuses none.
  ASSERT_EQ(::listen(refusing.get(), 0), 0);
  unservedOf(std::vector(10, addressOf(refusing)), 50ms);
  EXPECT_EQ(unservedOf({addressOf(refusing), addressOf(taking)}, 50ms), std::set{addressOf(refusing)});
}

// A member of etcd takes a connection only from an address that its certificate names.
TEST_F(VotingTest, ItsCertificateNamesEveryAddressOfTheMachine) {
  start(1, 1);
  await(1, vote({1}));
  const std::unique_ptr<FILE, int (*)(FILE*)> file(
      fopen(tlsFilesIn(directory(1) + "/tls").certificate_file.c_str(), "r"), &fclose);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(PEM_read_X509(file.get(), nullptr, nullptr, nullptr),
                                                           &X509_free);
  std::vector<SocketAddress> addresses = net::localAddresses();
  addresses.push_back(address(1));
  for (const SocketAddress& one : addresses)
    EXPECT_EQ(X509_check_ip_asc(certificate.get(), one.ip.toString().c_str(), 0), 1) << one.ip.toString();
}

TEST_F(VotingTest, TheVersionIsAMetric) {
  Voting::Options plain = options(1, 1);
  plain.secret.reset();
  start(1, std::move(plain));
  await(1, vote({1}));
  const auto& metrics = machines_.at(1)->metrics;
  EXPECT_TRUE(eventually([&metrics] { return test_support::sumOf(metrics, "idetcd_peers_etcd_version") == 1; }));
  EXPECT_TRUE(eventually([&metrics] { return test_support::sumOf(metrics, "idetcd_peers_voters") == 1; }));
  EXPECT_EQ(test_support::sumOf(metrics, "idetcd_peers_leads"), 1);
  EXPECT_EQ(test_support::sumOf(metrics, "idetcd_peers_changes_total"), 0);
}

}  // namespace
}  // namespace idetcd::peers
