#include "service/manager.h"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "service_socket.h"

namespace idetcd::service {
namespace {

using namespace std::chrono_literals;

// The server's end of a whole handover.
Result<bool> giveWhenAsked(HandoverSocket& own, const std::vector<OwnDescriptor>& all) {
  Result<bool> given = false;
  while (given && !*given) {
    pollfd event{.fd = own.fd(), .events = POLLIN, .revents = 0};
    if (poll(&event, 1, 10'000) != 1) return fail("nobody asks");
    given = own.give(all);
  }
  return given;
}

Result<std::vector<GivenDescriptor>> takeOver(const std::string& path, std::chrono::milliseconds budget) {
  auto predecessor = Predecessor::find(path);
  if (!predecessor) return tl::unexpected(predecessor.error());
  if (!*predecessor) return std::vector<GivenDescriptor>();
  return (*predecessor)->takeOver(budget);
}

class HandoverTest : public ::testing::Test {
 protected:
  HandoverTest() {
    std::string made = (std::filesystem::temp_directory_path() / "handover-XXXXXX").string();
    EXPECT_NE(mkdtemp(made.data()), nullptr);
    directory_ = made;
    path_ = directory_ / "socket";
  }
  ~HandoverTest() override { std::filesystem::remove_all(directory_); }

  // A server that gives `all` and ends.
  std::thread serve(std::vector<OwnDescriptor> all) {
    auto listening = std::make_shared<Result<HandoverSocket>>(HandoverSocket::listen(path_));
    EXPECT_TRUE(listening->has_value());
    return std::thread([listening, all = std::move(all)] {
      EXPECT_EQ(giveWhenAsked(**listening, all), true);
    });
  }

  std::filesystem::path directory_;
  std::string path_;
};

TEST_F(HandoverTest, TheSuccessorHasEverySocketByItsName) {
  const FileDescriptor udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const FileDescriptor tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::thread server = serve({{.fd = udp.get(), .name = "first"}, {.fd = tcp.get(), .name = "second"}});
  const auto taken = takeOver(path_, 10s);
  server.join();
  ASSERT_TRUE(taken.has_value()) << taken.error().message;
  ASSERT_EQ(taken->size(), 2U);
  EXPECT_EQ((*taken)[0].name, "first");
  EXPECT_EQ(test::inode((*taken)[0].fd.get()), test::inode(udp.get()));
  EXPECT_EQ((*taken)[1].name, "second");
  EXPECT_EQ(test::inode((*taken)[1].fd.get()), test::inode(tcp.get()));
}

// Until the server has ended it has the state directory.
TEST_F(HandoverTest, TheSuccessorWaitsForTheEndOfTheServer) {
  auto listening = HandoverSocket::listen(path_);
  ASSERT_TRUE(listening.has_value());
  auto taken = std::async(std::launch::async, [this] { return takeOver(path_, 10s); });
  ASSERT_EQ(giveWhenAsked(*listening, {}), true);
  EXPECT_EQ(taken.wait_for(50ms), std::future_status::timeout);  // meant as such: it must not return
  listening = fail("it has ended");
  EXPECT_TRUE(taken.get().has_value());
}

// The end of the connection is not that of the process, which closes the lock of its state directory maybe later.
TEST_F(HandoverTest, TheEndOfTheConnectionIsNotThatOfTheServer) {
  std::array<int, 2> closed;  // by the server, when its connection has ended
  std::array<int, 2> ends;    // written when the server may end
  ASSERT_EQ(pipe2(closed.data(), O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t server = fork();
  if (server == 0) {
    char byte = 0;
    bool is_given = false;
    {
      auto own = HandoverSocket::listen(path_);
      if (!own || write(closed[1], "l", 1) != 1) _exit(1);
      is_given = giveWhenAsked(*own, {}).value_or(false);
    }
    _exit(is_given && write(closed[1], "c", 1) == 1 && read(ends[0], &byte, 1) == 1 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(closed[0], &byte, 1), 1);  // it listens
  auto taken = std::async(std::launch::async, [this] { return takeOver(path_, 10s); });
  ASSERT_EQ(read(closed[0], &byte, 1), 1);
  EXPECT_EQ(taken.wait_for(50ms), std::future_status::timeout);  // meant as such: it must not return
  ASSERT_EQ(write(ends[1], "e", 1), 1);
  EXPECT_TRUE(taken.get().has_value());
  int status = 1;
  ASSERT_EQ(waitpid(server, &status, 0), server);
  EXPECT_EQ(status, 0);
  for (const int fd : {closed[0], closed[1], ends[0], ends[1]}) close(fd);
}

TEST_F(HandoverTest, WhereNobodyListensThereIsNothingToTake) {
  auto taken = takeOver(path_, 10s);
  EXPECT_TRUE(taken && taken->empty());
  { const auto former = HandoverSocket::listen(path_); }
  EXPECT_TRUE(std::filesystem::exists(path_)) << "what a process leaves";
  taken = takeOver(path_, 10s);
  EXPECT_TRUE(taken && taken->empty());
  EXPECT_TRUE(HandoverSocket::listen(path_).has_value()) << "and it is replaced";
}

TEST_F(HandoverTest, AServerThatGivesNothingIsNotTakenOver) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  FileDescriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const auto silent = takeOver(path_, 20ms);
  ASSERT_FALSE(silent.has_value());
  EXPECT_EQ(silent.error().message, "it takes too long");
  close(accept(listener.get(), nullptr, nullptr));  // the one that was not answered
  std::thread server([&listener] { close(accept(listener.get(), nullptr, nullptr)); });
  const auto refused = takeOver(path_, 10s);
  server.join();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "the server that runs does not give up its sockets");
}

// It has found that it cannot serve, say.
TEST_F(HandoverTest, ASuccessorThatGoesWithoutAskingChangesNothing) {
  auto listening = HandoverSocket::listen(path_);
  ASSERT_TRUE(listening.has_value());
  {
    auto predecessor = Predecessor::find(path_);
    ASSERT_TRUE(predecessor && *predecessor);
    EXPECT_EQ((*predecessor)->pid(), getpid());
    EXPECT_EQ(listening->give({}), false);
  }
  EXPECT_FALSE(giveWhenAsked(*listening, {}).has_value());
  auto taken = std::async(std::launch::async, [this] { return takeOver(path_, 10s); });
  EXPECT_EQ(giveWhenAsked(*listening, {}), true);
  listening = fail("it has ended");
  EXPECT_TRUE(taken.get().has_value());
}

TEST_F(HandoverTest, NobodyElseMayConnectAndNoFileIsReplaced) {
  const auto listening = HandoverSocket::listen(path_);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  const std::string file = directory_ / "file";
  std::ofstream(file) << "mine";
  EXPECT_FALSE(HandoverSocket::listen(file).has_value());
  EXPECT_EQ(std::filesystem::file_size(file), 4U);
  EXPECT_FALSE(HandoverSocket::listen(directory_ / std::string(200, 'x')).has_value());
}

}  // namespace
}  // namespace idetcd::service
