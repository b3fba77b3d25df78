#include "sandbox/confinement.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <linux/bpf.h>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace idetcd::sandbox {
namespace {

// The lines of the capabilities.
std::string capabilities() {
  const std::string status = contentsOf("/proc/self/status");
  return status.substr(status.find("CapInh"), status.find("NoNewPrivs") - status.find("CapInh"));
}

std::string confined(Mode mode, const std::function<std::string()>& then) {
  return inChild([&] {
    limitRights(mode);
    confine(mode, {});
    return then();
  });
}

class ConfinementOfRootTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  }
};

TEST_F(ConfinementOfRootTest, TheRightsOfTheStartAreGivenUp) {
  const std::string expected =
      "CapInh:\t0000000000000000\nCapPrm:\t0000000000000400\nCapEff:\t0000000000000400\n"
      "CapBnd:\t0000000000000400\nCapAmb:\t0000000000000000\n";
  EXPECT_EQ(confined(Mode::kOn, capabilities), expected);
  EXPECT_EQ(confined(Mode::kLog, capabilities), expected);
}

TEST(Confinement, OffNothingChanges) { EXPECT_EQ(confined(Mode::kOff, capabilities), capabilities()); }

long bpf(bpf_cmd command, bpf_attr& attributes) { return syscall(SYS_bpf, command, &attributes, sizeof attributes); }

bpf_attr empty() {
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  return attributes;
}

int makeMap() {
  bpf_attr attributes = empty();
  attributes.map_type = BPF_MAP_TYPE_HASH;
  attributes.key_size = sizeof(uint32_t);
  attributes.value_size = sizeof(uint64_t);
  attributes.max_entries = 8;
  return static_cast<int>(bpf(BPF_MAP_CREATE, attributes));
}

bool pin(int map, const std::string& path) {
  bpf_attr attributes = empty();
  attributes.pathname = reinterpret_cast<uintptr_t>(path.c_str());
  attributes.bpf_fd = static_cast<uint32_t>(map);
  return bpf(BPF_OBJ_PIN, attributes) == 0;
}

int openPin(const std::string& path) {
  bpf_attr attributes = empty();
  attributes.pathname = reinterpret_cast<uintptr_t>(path.c_str());
  return static_cast<int>(bpf(BPF_OBJ_GET, attributes));
}

// Every command that serves to keep a map, as its number.
std::string commandsThatWorkOn(int map) {
  std::string worked;
  uint32_t key = 7;
  uint64_t value = 700;
  const auto try_one = [&](bpf_cmd command, bpf_attr attributes) {
    if (bpf(command, attributes) == 0) worked += fmt::format("{} ", static_cast<int>(command));
  };
  bpf_attr element = empty();
  element.map_fd = static_cast<uint32_t>(map);
  element.key = reinterpret_cast<uintptr_t>(&key);
  element.value = reinterpret_cast<uintptr_t>(&value);
  try_one(BPF_MAP_UPDATE_ELEM, element);
  value = 0;
  try_one(BPF_MAP_LOOKUP_ELEM, element);
  if (value != 700) return fmt::format("looked up {}", value);
  bpf_attr next = element;
  next.key = 0;
  try_one(BPF_MAP_GET_NEXT_KEY, next);
  std::array<uint32_t, 8> keys{};
  std::array<uint64_t, 8> values{};
  uint32_t position = 0;
  bpf_attr batch = empty();
  batch.batch.out_batch = reinterpret_cast<uintptr_t>(&position);
  batch.batch.keys = reinterpret_cast<uintptr_t>(keys.data());
  batch.batch.values = reinterpret_cast<uintptr_t>(values.data());
  batch.batch.count = 8;
  batch.batch.map_fd = static_cast<uint32_t>(map);
  // ENOENT: and there are no more.
  if (bpf(BPF_MAP_LOOKUP_BATCH, batch) == 0 || errno == ENOENT) worked += fmt::format("{}={} ", keys[0], values[0]);
  bpf_map_info said{};
  bpf_attr info = empty();
  info.info.bpf_fd = static_cast<uint32_t>(map);
  info.info.info_len = sizeof said;
  info.info.info = reinterpret_cast<uintptr_t>(&said);
  try_one(BPF_OBJ_GET_INFO_BY_FD, info);
  element.value = 0;
  try_one(BPF_MAP_DELETE_ELEM, element);
  return worked;
}

TEST_F(ConfinementOfRootTest, AServerThatMayNothingElseKeepsPinnedMaps) {
  const TemporaryDirectory directory;
  const std::string path = directory / "map";
  // In a mount namespace of its own: what is mounted goes with the child.
  const auto keep = [&](const std::function<void()>& confine_itself) {
    return inChild([&]() -> std::string {
      if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        return "no namespace";
      if (mount("none", directory.path().c_str(), "bpf", 0, nullptr) != 0) return "no bpffs";
      const int map = makeMap();
      if (map < 0 || !pin(map, path)) return "no map";
      close(map);
      confine_itself();
      const int opened = openPin(path);
      if (opened < 0) return strerrorname_np(errno);
      return commandsThatWorkOn(opened) + (makeMap() < 0 ? strerrorname_np(errno) : "made another");
    });
  };
  const std::string all = "2 1 4 7=700 15 3 ";
  const std::string free = keep([] {});
  if (free.starts_with("no ")) GTEST_SKIP() << free;
  ASSERT_EQ(free, all + "made another");
  EXPECT_EQ(keep([] {
              limitRights(Mode::kOn);
              confine(Mode::kOn, {});
            }),
            all + "EPERM");
}

}  // namespace
}  // namespace idetcd::sandbox
