// What a member keeps over a restart, what it publishes on the machine, and what it does when its addresses change.
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "naming/saved_names.h"
#include "node/uuid.h"
#include "support/program_runner.h"
#include "support/temporary_directory.h"
#include "unit/naming/member_fixture.h"
#include "unit/naming/tcp_proxy.h"

namespace idetcd::naming {
namespace {

using records::Freshness;

std::shared_ptr<node::StateDirectory> openState(const std::string& directory) {
  return node::StateDirectory::open({.directory = directory, .pattern = kPattern}, {}).value();
}

class MemberStateTest : public MemberTest {
 protected:
  ~MemberStateTest() override {
    for (const auto& node : nodes_) node->member.stop(0ms);  // before the directory goes
  }

  NodeOptions withState(NodeOptions made) {
    made.state = openState(directory_.path());
    made.save_interval = 50ms;
    return made;
  }
  NodeOptions withState() { return withState(options(server_.endpoint())); }
  std::string identityFile() const { return directory_ / node::fileStem(kPattern) + ".env"; }
  std::string identity() const { return contentsOf(identityFile()); }
  // What a shell gets from the file.
  std::string sourced(const std::string& expression) const {
    const std::string out = directory_ / "sourced";
    const std::string command = ". " + identityFile() + " && echo \"" + expression + "\" > " + out;
    return std::system(command.c_str()) == 0 ? contentsOf(out) : "failed\n";
  }
  // Ends a node as SIGKILL would: etcd hears nothing of it.
  void crash(Node& node, TcpProxy& proxy) {
    proxy.cut();
    node.member.stop(0ms);
  }
  std::string namesFile() const { return directory_ / node::fileStem(kPattern) + ".names"; }

  TemporaryDirectory directory_;
};

// The first loop starts a member of a reload, and answers queries meanwhile. What replaces the file waits for a FIFO.
TEST_F(MemberStateTest, AStartWaitsForNoDisk) {
  const NodeOptions made = withState();
  const std::string replacement = identityFile() + ".new";
  ASSERT_EQ(mkfifo(replacement.c_str(), 0600), 0);
  auto started = std::async(std::launch::async, [&]() -> Node& { return start(made); });
  EXPECT_EQ(started.wait_for(10s), std::future_status::ready);
  const FileDescriptor reader(open(replacement.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_TRUE(started.get().owns("worker1.tf.local."));
}

// --- sticky ---

TEST_F(MemberStateTest, ACrashedNodeTakesItsKeyBackAtOnceAndKeepsItWhenTheOldLeaseEnds) {
  TcpProxy proxy(server_.clientPort());
  NodeOptions made = options(proxy.endpoint());
  made.lease = 16s;  // the next process is there before its end
  Node& before = start(withState(made));
  ASSERT_TRUE(before.owns("worker1.tf.local."));
  const int64_t token = before.member.ownership()->token;
  const std::string uuid = uuidOf("worker1.tf.local.");
  crash(before, proxy);
  ASSERT_EQ(keys("worker").size(), 1u);
  ASSERT_EQ(leases(), 1u);

  made.endpoints = {server_.endpoint()};
  Node& after = start(withState(made));
  ASSERT_TRUE(after.owns("worker1.tf.local."));
  EXPECT_EQ(uuidOf("worker1.tf.local."), uuid);
  EXPECT_GT(after.member.ownership()->token, token) << "another process is another holder";
  EXPECT_EQ(decodeRecord(keys("worker").at("worker1.tf.local."))->token, after.member.ownership()->token);
  EXPECT_EQ(after.counted("idetcd_claim_requests_total"), 3u);
  EXPECT_TRUE(keys(kQueue).empty());
  ASSERT_TRUE(eventually([&] { return leases() == 1; }));  // the old one has ended
  const uint64_t keepalives = after.counted("idetcd_keepalives_total");
  ASSERT_TRUE(eventually([&] { return after.counted("idetcd_keepalives_total") > keepalives + 1; }));
  EXPECT_EQ(after.name(), "worker1.tf.local.");
  EXPECT_EQ(after.counted("idetcd_claims_total"), 1u);
}

// Its lease and its revision say nothing of a key in this one.
TEST_F(MemberStateTest, AStateOfAnotherStoreDoesNotTakeTheNameBack) {
  TcpProxy proxy(server_.clientPort());
  NodeOptions made = options(proxy.endpoint());
  made.lease = 3s;
  Node& before = start(withState(made));
  ASSERT_TRUE(before.owns("worker1.tf.local."));
  crash(before, proxy);
  const auto state = openState(directory_.path());
  node::RememberedNode known = state->node();
  ASSERT_NE(known.cluster_id, 0u);
  ++known.cluster_id;
  ASSERT_TRUE(state->remember(known));
  state->release();

  made.endpoints = {server_.endpoint()};
  Node& after = start(withState(made));
  ASSERT_TRUE(after.owns("worker1.tf.local."));
  EXPECT_GT(after.counted("idetcd_claim_requests_total"), 3u) << "not before the old lease has ended";
}

TEST_F(MemberStateTest, AfterALongAbsenceTheOldNameIsPreferredIfItIsFree) {
  const auto state = openState(directory_.path());
  ASSERT_TRUE(state->remember({state->node().uuid, "worker3.tf.local.", 3}));
  state->release();
  Node& node = start(withState());
  ASSERT_TRUE(node.owns("worker3.tf.local."));
  EXPECT_EQ(node.counted("idetcd_claim_requests_total"), 4u);
}

TEST_F(MemberStateTest, AnOldNameThatIsTakenIsLeftToItsOwner) {
  const auto state = openState(directory_.path());
  ASSERT_TRUE(state->remember({state->node().uuid, "worker3.tf.local.", 3}));
  state->release();
  for (const char* theirs : {R"({"ipv4":"192.0.2.77","port":"53"})", R"({"id":"6c3e0000-somebody"})", "garbage"}) {
    server_.ctl({"put", "worker3.tf.local.", theirs});
    Node& node = start(withState());
    ASSERT_TRUE(node.owns("worker1.tf.local."));
    EXPECT_EQ(keys("worker3").at("worker3.tf.local."), theirs);
    node.member.stop(10s);
  }
}

TEST_F(MemberStateTest, AnOldNameOfAnotherLimitOrPatternIsForgotten) {
  for (const node::RememberedNode& old :
       {node::RememberedNode{"", "worker12.tf.local.", 12}, node::RememberedNode{"", "node3.tf.local.", 3},
        node::RememberedNode{"", "worker4.tf.local.", 5}, node::RememberedNode{"", "", -1}}) {
    const auto state = openState(directory_.path());
    ASSERT_TRUE(state->remember({state->node().uuid, old.name, old.id}));
    state->release();
    Node& node = start(withState());
    EXPECT_TRUE(node.owns("worker1.tf.local."));
    node.member.stop(10s);
  }
}

TEST_F(MemberStateTest, AnOwnKeyThatHangsOnNoLeaseIsNotOurs) {
  Node& node = start(withState());
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const std::string value = keys("worker").at("worker1.tf.local.");
  server_.ctl({"put", "worker1.tf.local.", value});  // without our lease
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  EXPECT_EQ(node.counted("idetcd_conflicts_total"), 1u);
  EXPECT_EQ(leases(), 1u);
  node.member.stop(10s);
  // Nor after a restart.
  const auto state = openState(directory_.path());
  const node::RememberedNode known = state->node();
  ASSERT_TRUE(state->remember({known.uuid, "worker1.tf.local.", 1}));
  state->release();
  Node& after = start(withState());
  ASSERT_TRUE(after.owns("worker2.tf.local."));
  EXPECT_EQ(uuidOf("worker2.tf.local."), known.uuid);
  EXPECT_EQ(keys("worker1").at("worker1.tf.local."), value);
}

// The original is cut off from etcd and takes the name for its own until its lease is over.
TEST_F(MemberStateTest, ACopiedStateWaitsForTheEndOfTheOldLease) {
  TcpProxy proxy(server_.clientPort());
  NodeOptions made = options(proxy.endpoint());
  made.lease = 6s;
  Node& original = start(withState(made));
  ASSERT_TRUE(original.owns("worker1.tf.local."));
  const int64_t token = original.member.ownership()->token;
  const std::string uuid = uuidOf("worker1.tf.local.");
  const std::string json = directory_ / node::fileStem(kPattern) + ".json";
  // The lease is on disk before the claim, the name after it.
  ASSERT_TRUE(eventually([&] {
    const std::string written = contentsOf(json);
    return written.find("\"leases\"") != std::string::npos &&
           written.find("\"worker1.tf.local.\"") != std::string::npos;
  }));
  TemporaryDirectory copied;
  overwrite(copied / node::fileStem(kPattern) + ".json", contentsOf(json));
  proxy.cut();
  ASSERT_EQ(original.name(), "worker1.tf.local.");

  made.endpoints = {server_.endpoint()};
  made.state = openState(copied.path());
  Node& copy = start(made);
  ASSERT_TRUE(eventually([&] {
    const std::string theirs = copy.name();  // first: the original's deadline passes meanwhile, if at all
    EXPECT_TRUE(theirs.empty() || original.name().empty()) << "two owners";
    return theirs == "worker1.tf.local.";
  }));
  EXPECT_GT(copy.member.ownership()->token, token);
  EXPECT_EQ(uuidOf("worker1.tf.local."), uuid);
  copy.member.stop(10s);
}

TEST_F(MemberStateTest, TwoNodesWithOneUuidEndWithTwo) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 6s;
  KernelRandom random;
  made.uuid = node::randomUuid(random);
  Node& first = start(made);
  ASSERT_TRUE(first.owns("worker1.tf.local."));
  const auto state = openState(directory_.path());
  ASSERT_TRUE(state->remember({made.uuid, "worker1.tf.local.", 1}));
  state->release();
  Node& copy = start(withState());
  ASSERT_TRUE(eventually([&] { return !first.name().empty() && !copy.name().empty() && first.name() != copy.name(); }));
  EXPECT_EQ(slotsByUuid().size(), 2u);
  EXPECT_EQ(first.counted("idetcd_conflicts_total") + copy.counted("idetcd_conflicts_total"), 1u);
}

TEST_F(MemberStateTest, ARestartInOrderKeepsUuidAndName) {
  start();  // worker1
  ASSERT_TRUE(nodes_[0]->ownsSomething());
  Node& before = start(withState());
  ASSERT_TRUE(before.owns("worker2.tf.local."));
  const std::string uuid = uuidOf("worker2.tf.local.");
  nodes_[0]->member.stop(10s);
  before.member.stop(10s);
  ASSERT_TRUE(keys("").empty());
  Node& after = start(withState());
  EXPECT_TRUE(after.owns("worker2.tf.local."));  // though the first is free
  EXPECT_EQ(uuidOf("worker2.tf.local."), uuid);
}

// --- what is published on the machine ---

// A program that takes its time with the loss. Whoever takes the name next would have it while this machine still acts under
// it.
class GivingUpTest : public MemberStateTest {
 protected:
  Node& startWithProgram() {
    NodeOptions made = withState();
    made.runner = test_support::program_runner;
    made.on_claim = {"sh", "-c",
                     "echo $IDETCD_EVENT >> " + out_ + "; until [ $IDETCD_EVENT = claim -o -e " + out_ +
                         ".go ]; do sleep 0.01; done"};
    Node& node = start(made);
    EXPECT_TRUE(node.owns("worker1.tf.local."));
    EXPECT_TRUE(eventually([&] { return contentsOf(out_) == "claim\n"; }));
    return node;
  }
  // `give_up` returns when the name is given up.
  void expectToldFirst(const std::function<void()>& give_up) {
    const auto began = std::chrono::steady_clock::now();
    const auto given_up = std::async(std::launch::async, give_up);
    ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "claim\nloss\n"; }));
    EXPECT_EQ(identity(), "");
    const bool is_there = !keys("worker1").empty();
    // It is not waited for for ever: on a machine that is so slow nothing is shown.
    if (std::chrono::steady_clock::now() - began < 900ms) {
      EXPECT_TRUE(is_there);
    }
    overwrite(out_ + ".go", "");
    given_up.wait();
  }

  const std::string out_ = directory_ / "out";
};

TEST_F(GivingUpTest, AtTheEndTheNameIsGivenBackAfterTheProgramWasToldOfItsLoss) {
  Node& node = startWithProgram();
  expectToldFirst([&] { node.member.stop(10s); });
  EXPECT_TRUE(keys("worker1").empty());
}

TEST_F(GivingUpTest, ANameThatIsReleasedIsGivenUpAfterTheProgramWasToldOfItsLoss) {
  startWithProgram();
  Node& second = start();
  ASSERT_TRUE(second.owns("worker2.tf.local."));
  const std::string uuid = uuidOf("worker1.tf.local.");
  const int64_t created = createRevision("worker1.tf.local.");
  expectToldFirst([&] {
    Answer<store::StoreResult<std::optional<RosterSlot>>> slot;
    second.member.readSlot("worker1.tf.local.", slot.done());
    Answer<store::StoreResult<bool>> released;
    second.member.releaseSlot("worker1.tf.local.", slot.get().value()->revision, released.done());
    EXPECT_TRUE(released.get().value());
  });
  EXPECT_TRUE(eventually([&] { return contentsOf(out_) == "claim\nloss\nclaim\n"; }));
  EXPECT_GT(createRevision("worker1.tf.local."), created) << "the lowest free name";
  EXPECT_EQ(uuidOf("worker1.tf.local."), uuid);
}

TEST_F(MemberStateTest, AShellCanSourceTheIdentityWhileTheNameIsOwned) {
  Node& node = start(withState());
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  ASSERT_TRUE(eventually([&] { return !identity().empty(); }));
  EXPECT_EQ(sourced("$IDETCD_NAME $IDETCD_ID $IDETCD_TOKEN $IDETCD_UUID $IDETCD_IPV4 $IDETCD_IPV6"),
            "worker1.tf.local. 1 " + std::to_string(node.member.ownership()->token) + " " +
                uuidOf("worker1.tf.local.") + " 192.0.2.2 fd00::2\n");
  node.member.stop(10s);
  EXPECT_EQ(identity(), "");
}

TEST_F(MemberStateTest, TheIdentityIsEmptyAfterTheDeadlineAndComesBack) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 3s;
  Node& node = start(withState(made));
  ASSERT_TRUE(node.ownsSomething());
  ASSERT_TRUE(eventually([&] { return !identity().empty(); }));
  server_.pause();
  ASSERT_TRUE(eventually([&] { return identity().empty(); }));
  EXPECT_EQ(node.name(), "");
  server_.resume();
  EXPECT_TRUE(eventually([&] { return !identity().empty(); }));
}

TEST_F(MemberStateTest, TheProgramHearsOfClaimsAndLossesAndFindsTheFile) {
  const std::string out = directory_ / "events";
  const std::string file = identityFile();
  NodeOptions made = withState();
  // When it hears of a loss the next claim may have been written already. For a slow disk it is held up for 200 ms
  // only, so it waits for the file itself (that it is started after the file is written: claim_hook_test.cc).
  made.runner = test_support::program_runner;
  made.on_claim = {"sh", "-c",
                   "test $IDETCD_EVENT = loss || { until grep -q $IDETCD_NAME " + file +
                       "; do sleep 0.01; done; lines=$(grep -c . " + file +
                       "); }; echo $IDETCD_EVENT $IDETCD_NAME $IDETCD_ID $IDETCD_TOKEN $lines >> " + out};
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const std::string first = std::to_string(node.member.ownership()->token);
  std::string expected = "claim worker1.tf.local. 1 " + first + " 7\n";
  ASSERT_TRUE(eventually([&] { return contentsOf(out) == expected; }));
  server_.ctl({"put", "worker1.tf.local.", "{}"});
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  const std::string second = std::to_string(node.member.ownership()->token);
  expected += "loss worker1.tf.local. 1 " + first + "\nclaim worker2.tf.local. 2 " + second + " 7\n";
  ASSERT_TRUE(eventually([&] { return contentsOf(out) == expected; })) << contentsOf(out);
  node.member.stop(30s);
  EXPECT_EQ(contentsOf(out), expected + "loss worker2.tf.local. 2 " + second + "\n");
}

TEST_F(MemberStateTest, AProgramThatHangsHoldsUpNothing) {
  NodeOptions made = options(server_.endpoint());
  made.runner = test_support::program_runner;
  made.on_claim = {"sleep", "600"};
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  server_.ctl({"del", "worker1.tf.local."});
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_claims_total") == 2; }));
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const auto begin = std::chrono::steady_clock::now();
  node.member.stop(200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s) << "the program's own limit is 30 s";
}

// --- addresses ---

// What the machine is said to have; the monitor looks once at start.
Result<node::NodeAddresses> machineWith(const char* ipv4, std::string warning = {}) {
  return node::NodeAddresses{{{IpAddress::parse(ipv4), std::nullopt}, {}}, std::move(warning), {}};
}

TEST_F(MemberStateTest, NewAddressesGoIntoTheRecordUnderTheSameToken) {
  NodeOptions made = withState();
  const auto claimed = std::make_shared<std::promise<void>>();
  made.find_addresses = [ready = claimed->get_future().share()] {
    ready.wait_for(60s);
    return machineWith("192.0.2.99");
  };
  made.on_ownership = [claimed, first = true](const std::optional<Ownership>&) mutable {
    if (std::exchange(first, false)) claimed->set_value();
  };
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const int64_t token = node.member.ownership()->token;
  ASSERT_TRUE(node.sees("worker1.tf.local.", "192.0.2.99"));
  EXPECT_EQ(node.member.ownership()->token, token);
  EXPECT_EQ(node.member.addresses().ipv4, IpAddress::parse("192.0.2.99"));
  // The watch shows the change before the answer to it has been read.
  EXPECT_TRUE(eventually([&] { return node.counted("idetcd_address_updates_total") == 1; }));
  EXPECT_EQ(node.counted("idetcd_claims_total"), 1u);
  EXPECT_EQ(keys("").size(), 1u);
  EXPECT_TRUE(eventually([&] { return sourced("$IDETCD_IPV4 $IDETCD_IPV6") == "192.0.2.99 \n"; }));
  node.member.stop(10s);
  EXPECT_EQ(leases(), 0u);
}

TEST_F(MemberStateTest, AddressesThatChangeBeforeTheClaimAreClaimedWith) {
  server_.stop();
  NodeOptions made = options(server_.endpoint());
  made.find_addresses = [] { return machineWith("192.0.2.99"); };
  Node& node = start(made);
  ASSERT_TRUE(eventually([&] { return node.member.addresses().ipv4 == IpAddress::parse("192.0.2.99"); }));
  server_.start();
  ASSERT_TRUE(node.sees("worker1.tf.local.", "192.0.2.99"));
  EXPECT_EQ(node.counted("idetcd_address_updates_total"), 0u);
}

TEST_F(MemberStateTest, AMachineOffTheNetworkKeepsWhatItPublished) {
  NodeOptions made = options(server_.endpoint());
  const auto asked = std::make_shared<std::atomic<int>>(0);
  made.find_addresses = [asked] {
    ++*asked;
    return machineWith("127.0.0.1", "only loopback");
  };
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  ASSERT_TRUE(eventually([&] { return *asked > 0; }));
  server_.ctl({"put", "a.x.", "{}"});
  ASSERT_TRUE(node.sees("a.x.", "no data"));  // the completion thread has gone on
  EXPECT_EQ(node.view.at("worker1.tf.local."), "192.0.2.2 fd00::2");
  node.member.stop(10s);
}

// --- the names as last known ---

TEST_F(MemberStateTest, ANodeThatStartsWithoutEtcdAnswersWhatItLastKnew) {
  server_.ctl({"put", "gone.x.", R"({"ipv4":"192.0.2.70"})"});
  server_.ctl({"put", "changed.x.", R"({"ipv4":"192.0.2.71"})"});
  Node& before = start(withState());
  ASSERT_TRUE(before.owns("worker1.tf.local."));
  ASSERT_TRUE(before.sees("changed.x.", "192.0.2.71"));
  ASSERT_TRUE(eventually([&] { return before.counted("idetcd_saves_total") > 0; }));
  before.member.stop(10s);
  server_.ctl({"del", "gone.x."});
  server_.ctl({"put", "changed.x.", R"({"ipv4":"192.0.2.72"})"});
  server_.stop();

  Node& after = start(withState());
  EXPECT_EQ(after.store.freshness(), Freshness::kFromFile);
  EXPECT_EQ(after.view.at("gone.x."), "192.0.2.70");
  EXPECT_EQ(after.view.at("changed.x."), "192.0.2.71");
  EXPECT_EQ(after.name(), "");
  server_.start();
  ASSERT_TRUE(after.owns("worker1.tf.local."));
  // A name may be owned before all names have been read.
  EXPECT_TRUE(eventually([&] { return after.store.freshness() == Freshness::kFresh; }));
  EXPECT_EQ(after.view.at("gone.x."), "none");
  EXPECT_EQ(after.view.at("changed.x."), "192.0.2.72");
  EXPECT_EQ(after.counted("idetcd_store_restarts_total"), 0u);
}

TEST_F(MemberStateTest, ALostStoreReplacesWhatTheFileSaid) {
  for (int i = 0; i < 20; ++i) server_.ctl({"put", "a.x.", R"({"ipv4":"192.0.2.70"})"});
  Node& before = start(withState());
  ASSERT_TRUE(before.sees("a.x.", "192.0.2.70"));
  before.member.stop(10s);
  EXPECT_GT(before.counted("idetcd_saves_total"), 0u);
  server_.kill();
  server_.wipe();
  server_.start();
  server_.ctl({"put", "a.x.", R"({"ipv4":"192.0.2.71"})"});  // at a revision far below
  Node& after = start(withState());
  EXPECT_TRUE(after.sees("a.x.", "192.0.2.71"));
  EXPECT_TRUE(after.owns("worker1.tf.local."));
  EXPECT_EQ(after.counted("idetcd_claims_total"), 1u);
}

TEST_F(MemberStateTest, ABadFileCostsNothingElse) {
  Node& before = start(withState());
  ASSERT_TRUE(before.owns("worker1.tf.local."));
  before.member.stop(10s);
  const std::string good = contentsOf(namesFile());
  ASSERT_FALSE(good.empty());
  overwrite(namesFile(), good.substr(0, good.size() - 1));
  Node& after = start(withState());
  EXPECT_EQ(after.counted("idetcd_saved_refused_total"), 1u);
  ASSERT_TRUE(after.owns("worker1.tf.local."));
  EXPECT_TRUE(eventually([&] { return contentsOf(namesFile()) != good.substr(0, good.size() - 1); }));  // a new one
}

TEST_F(MemberStateTest, NamesAreSavedOnlyWhenTheyChange) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 8s;
  Node& node = start(withState(made));
  const auto aWhilePasses = [&node] {
    const uint64_t keepalives = node.counted("idetcd_keepalives_total");
    return eventually([&] { return node.counted("idetcd_keepalives_total") > keepalives; });
  };
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  server_.ctl({"put", "a.x.", "{}"});
  ASSERT_TRUE(eventually([&] { return contentsOf(namesFile()).find("\1a\1x") != std::string::npos; }));
  ASSERT_TRUE(aWhilePasses() && aWhilePasses());  // it counts a moment after the file is there
  const uint64_t saves = node.counted("idetcd_saves_total");
  for (int i = 0; i < 5; ++i) server_.ctl({"put", "/not/a/name", "x"});
  ASSERT_TRUE(aWhilePasses());
  EXPECT_EQ(node.counted("idetcd_saves_total"), saves);
}

// --- limits ---

TEST_F(MemberStateTest, NamesBeyondTheMostAreRefusedAndCounted) {
  NodeOptions made = options(server_.endpoint());
  made.observe = true;
  made.max_names = 3;
  for (int i = 0; i < 5; ++i) server_.ctl({"put", "n" + std::to_string(i) + ".x.", R"({"ipv4":"192.0.2.1"})"});
  Node& node = start(made);
  ASSERT_TRUE(node.sees("n2.x.", "192.0.2.1"));
  // Each name is taken over on its own, and these two come after that one.
  EXPECT_TRUE(eventually([&] { return node.counted("idetcd_names_refused_total") == 2; }));
  EXPECT_EQ(node.view.at("n3.x."), "none");
  server_.ctl({"put", "n1.x.", R"({"ipv4":"192.0.2.9"})"});  // one that is there may change
  EXPECT_TRUE(node.sees("n1.x.", "192.0.2.9"));
  server_.ctl({"del", "n1.x."});
  server_.ctl({"put", "n3.x.", R"({"ipv4":"192.0.2.3"})"});
  EXPECT_TRUE(node.sees("n3.x.", "192.0.2.3"));
}

// --- another cluster ---

TEST_F(MemberStateTest, AnotherClusterWithHigherRevisionsIsReadAnew) {
  EtcdServer other;
  for (int i = 0; i < 50; ++i) other.ctl({"put", "a.x.", R"({"ipv4":"192.0.2.70"})"});
  server_.ctl({"put", "b.x.", R"({"ipv4":"192.0.2.71"})"});
  other.stop();
  NodeOptions made = options(other.endpoint());  // of two clusters the first one counts, once it is known
  made.endpoints.push_back(server_.endpoint());
  made.observe = true;
  Node& node = start(made);
  ASSERT_TRUE(node.sees("b.x.", "192.0.2.71"));
  other.start();
  server_.stop();
  ASSERT_TRUE(node.sees("a.x.", "192.0.2.70"));
  EXPECT_TRUE(node.sees("b.x.", "none"));
  EXPECT_EQ(node.counted("idetcd_store_restarts_total"), 1u);
  node.member.stop(0ms);
  thread_.stop();
}

}  // namespace
}  // namespace idetcd::naming
