// Attaching, pinning and exchanging the program, in a network namespace and on a file system of the test's own.
#include "kernel/program.h"

#include <net/if.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernel_support.h"
#include "support/network_namespace.h"
#include "support/temporary_directory.h"

namespace idetcd::kernel {
namespace {

using namespace test;

// Mounts are the test's own: each test is a process.
class PinTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hasProgram() || getuid() != 0) GTEST_SKIP() << "XDP IS NOT TESTED: no program, or not root";
    const bool mounted = unshare(CLONE_NEWNS) == 0 && mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("bpf", files_.path().c_str(), "bpf", 0, nullptr) == 0;
    if (!mounted) GTEST_SKIP() << "XDP IS NOT TESTED: " << std::strerror(errno);
  }
  void TearDown() override { umount2(files_.path().c_str(), MNT_DETACH); }

  std::shared_ptr<Maps> open() {
    auto maps = Maps::open(directory_);
    EXPECT_TRUE(maps) << maps.error().message;
    return maps ? *maps : nullptr;
  }
  // The number of the program on an interface; 0: none.
  uint32_t programOn(const std::string& interface) {
    const auto links = readLinks(directory_);
    EXPECT_TRUE(links);
    for (const LinkStatus& link : *links) {
      if (link.interface == interface && link.is_attached) return link.program;
    }
    return 0;
  }

  test_support::NetworkNamespace network_;
  TemporaryDirectory files_;
  std::string directory_ = files_ / "idetcd";
  AttachOptions options_{.interfaces = {"lo"}, .mode = Mode::kAny, .max_names = 64};
};

TEST_F(PinTest, AttachesAndPins) {
  const auto attached = attachPinned(options_, directory_);
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_GT(programOn("lo"), 0u);
  const auto maps = open();
  ASSERT_NE(maps, nullptr);
  EXPECT_EQ(maps->maxNames(), 64u);
  EXPECT_NE(maps->settings().seed[0], maps->settings().seed[1]);
  EXPECT_EQ(detachPinned(directory_).value(), true);
  EXPECT_NE(access(directory_.c_str(), F_OK), 0);
  EXPECT_EQ(detachPinned(directory_).value(), false);
  EXPECT_TRUE(attach(options_));  // nothing is left on the interface
}

TEST_F(PinTest, TheNextOneExchangesTheProgramAndKeepsTheMaps) {
  ASSERT_TRUE(attachPinned(options_, directory_));
  const auto before = open();
  const uint32_t program = programOn("lo");
  ASSERT_EQ(before->names().put({.hash = {1, 2}}, Name{}), PutOutcome::kDone);
  ASSERT_TRUE(attachPinned(options_, directory_));
  EXPECT_NE(programOn("lo"), program);
  const auto after = open();
  EXPECT_EQ(after->settings().seed[0], before->settings().seed[0]);
  EXPECT_TRUE(after->names().erase({.hash = {1, 2}}));
}

TEST_F(PinTest, OtherSizesMeanOtherMaps) {
  ASSERT_TRUE(attachPinned(options_, directory_));
  const auto before = open();
  options_.max_names = 128;
  ASSERT_TRUE(attachPinned(options_, directory_));
  const auto after = open();
  EXPECT_EQ(after->maxNames(), 128u);
  EXPECT_NE(after->settings().seed[0], before->settings().seed[0]);
}

TEST_F(PinTest, InterfacesThatAreNotNamedAreLetGo) {
  ASSERT_EQ(std::system("ip link add xa type veth peer name xb"), 0);
  options_.interfaces = {"lo", "xa"};
  ASSERT_TRUE(attachPinned(options_, directory_));
  EXPECT_GT(programOn("xa"), 0u);
  options_.interfaces = {"lo"};
  ASSERT_TRUE(attachPinned(options_, directory_));
  EXPECT_EQ(programOn("xa"), 0u);
  EXPECT_GT(programOn("lo"), 0u);
}

TEST_F(PinTest, AnInterfaceThatCameBackIsAttachedToAgain) {
  ASSERT_EQ(std::system("ip link add xa type veth peer name xb"), 0);
  options_.interfaces = {"xa"};
  ASSERT_TRUE(attachPinned(options_, directory_));
  ASSERT_EQ(std::system("ip link del xa; ip link add xa type veth peer name xb"), 0);
  EXPECT_EQ(programOn("xa"), 0u);
  ASSERT_TRUE(attachPinned(options_, directory_));
  EXPECT_GT(programOn("xa"), 0u);
}

TEST_F(PinTest, AForeignProgramIsNotReplaced) {
  const auto foreign = attach(options_);
  ASSERT_TRUE(foreign);
  for (const auto& refused :
       {attachPinned(options_, directory_), Result<void>(attach(options_).map([](const auto&) {}))}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "lo has another XDP program, which is not replaced");
  }
  EXPECT_EQ(programOn("lo"), 0u);
}

TEST_F(PinTest, AVethIsAttachedToWhereItLosesNothing) {
  ASSERT_EQ(std::system("ip link add xa type veth peer name xb"), 0);
  EXPECT_TRUE(isVeth("xa"));
  EXPECT_FALSE(isVeth("lo"));
  EXPECT_FALSE(isVeth("none0"));
  options_.interfaces = {"xa"};
  ASSERT_TRUE(attachPinned(options_, directory_));
  EXPECT_EQ(std::system("ip -d link show xa | grep -q xdpgeneric"), 0);
}

TEST_F(PinTest, AModeThatCannotBeLeavesWhatWasThere) {
  ASSERT_TRUE(attachPinned(options_, directory_));
  options_.mode = Mode::kNative;
  EXPECT_FALSE(attachPinned(options_, directory_));
  EXPECT_GT(programOn("lo"), 0u);
}

TEST_F(PinTest, AnInterfaceMayHaveADotInItsName) {
  ASSERT_EQ(std::system("ip link add xa.5 type veth peer name xb"), 0);
  options_.interfaces = {"xa.5"};
  const auto attached = attachPinned(options_, directory_);
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_GT(programOn("xa.5"), 0u);
  ASSERT_TRUE(attachPinned(options_, directory_));
  EXPECT_EQ(detachPinned(directory_).value(), true);
}

TEST_F(PinTest, TheFilesKeepTheirUser) {
  ASSERT_TRUE(attachPinned(options_, directory_, "65534"));
  ASSERT_TRUE(attachPinned(options_, directory_));
  struct stat found;
  ASSERT_EQ(stat((directory_ + "/names").c_str(), &found), 0);
  EXPECT_EQ(found.st_uid, 65534u);
}

TEST_F(PinTest, SaysWhatIsWrong) {
  const TemporaryDirectory plain;
  const auto elsewhere = attachPinned(options_, plain / "idetcd");
  ASSERT_FALSE(elsewhere);
  EXPECT_NE(elsewhere.error().message.find("is on no bpf file system"), std::string::npos);
  options_.interfaces = {"none0"};
  const auto missing = attachPinned(options_, directory_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "there is no interface none0");
  options_.interfaces = {"lo"};
  const auto nobody = attachPinned(options_, directory_, "no-such-user");
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().message, "there is no user no-such-user");
  const auto nothing = Maps::open(files_ / "other");
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kNotFound);
}

// Both have the maps for a while, as in a rolling upgrade.
TEST_F(PinTest, AProcessThatEndsSlowlyDoesNoHarm) {
  ASSERT_TRUE(attachPinned(options_, directory_));
  const auto before = open();
  const auto after = open();
  before->takeOver();
  EXPECT_TRUE(before->isFeeding());
  after->takeOver();
  EXPECT_FALSE(before->isFeeding());
  EXPECT_TRUE(after->isFeeding());
  records::EpochDomain epochs;
  records::RecordStore store(epochs, {.zone = name("tf.local."), .ttl_seconds = 5, .addresses = {}, .hash_seed = 7});
  store.addObserver(std::make_shared<AnswerFeed>(before, 0, ZoneIdentity{}, store));
  store.put(name("w1.tf.local."), {.ipv4 = ip("10.0.0.1"), .ipv6 = {}}, 1);
  store.setFreshness(records::Freshness::kFresh);
  size_t written = 0;
  EXPECT_TRUE(after->names().forEach([&written](const NameKey&, const Name&) { ++written; }));
  EXPECT_EQ(written, 0u);
  EXPECT_EQ(after->zone(0).fresh_until, 0u);
}

}  // namespace
}  // namespace idetcd::kernel
