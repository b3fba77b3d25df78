// The file of the control socket: made, replaced, and removed by its owner only.
#include "control/local_socket.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <gtest/gtest.h>

namespace idetcd::control {
namespace {

namespace fs = std::filesystem;

class LocalSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = ::testing::TempDir() + "idetcd-control-XXXXXX";
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    top_ = made;
    directory_ = top_ + "/run";
  }
  void TearDown() override { fs::remove_all(top_); }

  std::string path() const { return directory_ + "/53.sock"; }
  bool isConnectable() const {
    const FileDescriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    return ::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {})); }

  std::string top_;
  std::string directory_;
};

TEST_F(LocalSocketTest, IsForUserAndGroup) {
  const mode_t mask = ::umask(0);
  auto socket = LocalSocket::bind(directory_, 53);
  EXPECT_EQ(::umask(mask), 0U);
  ASSERT_TRUE(socket.has_value()) << socket.error().message;
  EXPECT_EQ(socket->path(), path());
  struct stat file {};
  ASSERT_EQ(::stat(directory_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0755U) << "whatever the umask";
  ASSERT_EQ(::stat(path().c_str(), &file), 0);
  EXPECT_TRUE(S_ISSOCK(file.st_mode));
  EXPECT_EQ(file.st_mode & 0777, 0660U);
  EXPECT_TRUE(isConnectable());
  EXPECT_EQ(files(), 1U);
}

TEST_F(LocalSocketTest, IsRemovedAtTheEnd) {
  {
    auto socket = LocalSocket::bind(directory_, 53);
    ASSERT_TRUE(socket.has_value());
    const FileDescriptor taken = socket->take();
    EXPECT_TRUE(taken.isOpen());
    EXPECT_TRUE(isConnectable());
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(LocalSocketTest, ReplacesWhatAProcessThatHasEndedHasLeft) {
  auto before = LocalSocket::bind(directory_, 53);
  ASSERT_TRUE(before.has_value());
  { const FileDescriptor closed = before->take(); }
  EXPECT_FALSE(isConnectable());
  auto after = LocalSocket::bind(directory_, 53);
  ASSERT_TRUE(after.has_value()) << after.error().message;
  EXPECT_TRUE(isConnectable());
  before->remove();
  EXPECT_TRUE(isConnectable()) << "the file is not its own any more";
}

TEST_F(LocalSocketTest, LeavesAProcessThatLivesAlone) {
  auto first = LocalSocket::bind(directory_, 53);
  ASSERT_TRUE(first.has_value());
  const auto second = LocalSocket::bind(directory_, 53);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message, "another process listens at " + path());
  EXPECT_TRUE(isConnectable());
  EXPECT_TRUE(LocalSocket::bind(directory_, 54).has_value());
}

TEST_F(LocalSocketTest, SaysWhatIsWrong) {
  const std::string file = top_ + "/file";
  std::ofstream(file) << "x";
  EXPECT_EQ(LocalSocket::bind(file, 53).error().message.find("cannot make " + file), 0U);
  const std::string deep = top_ + "/" + std::string(120, 'a');
  EXPECT_NE(LocalSocket::bind(deep, 53).error().message.find("too long for a Unix socket"), std::string::npos);
}

TEST_F(LocalSocketTest, IsWhereTheServiceManagerSays) {
  ASSERT_EQ(::setenv("RUNTIME_DIRECTORY", "/run/a:/run/b", 1), 0);
  EXPECT_EQ(socketDirectory(), "/run/a");
  ASSERT_EQ(::unsetenv("RUNTIME_DIRECTORY"), 0);
  EXPECT_EQ(socketDirectory(), "/run/idetcd");
}

}  // namespace
}  // namespace idetcd::control
