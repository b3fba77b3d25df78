#include "service/manager.h"

#include <memory>
#include <string>
#include <sys/socket.h>
#include <thread>

#include <gtest/gtest.h>

#include "service_socket.h"

namespace idetcd::service {
namespace {

using namespace std::chrono_literals;

class ManagerTest : public ::testing::Test {
 protected:
  test::Message next() { return socket_.next(); }

  test::NotifySocket socket_;
  const std::string address_ = socket_.address();
  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
};

TEST_F(ManagerTest, SaysThingsInTheirOrder) {
  Manager manager(address_, executor_, Logger());
  ASSERT_TRUE(manager.exists());
  manager.status("worker1.tf.local\nREADY=1");
  manager.ready();
  manager.reloading();
  manager.alive();
  manager.stopping();
  EXPECT_EQ(next().text, "STATUS=worker1.tf.local READY=1") << "no text can say something else";
  EXPECT_EQ(next().text, "READY=1");
  EXPECT_TRUE(next().text.starts_with("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_EQ(next().text, "WATCHDOG=1");
  EXPECT_EQ(next().text, "STOPPING=1");
}

TEST_F(ManagerTest, AStoredDescriptorMayBeClosedAtOnce) {
  Manager manager(address_, executor_, Logger());
  ino_t stored = 0;
  {
    const FileDescriptor udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    stored = test::inode(udp.get());
    manager.store(udp.get(), "udp-1");
  }
  manager.remove("udp-1");
  const test::Message message = next();
  EXPECT_EQ(message.text, "FDSTORE=1\nFDNAME=udp-1\nFDPOLL=0");
  EXPECT_EQ(test::inode(message.attached.get()), stored);
  EXPECT_EQ(next().text, "FDSTOREREMOVE=1\nFDNAME=udp-1");
}

// Many more messages than the queue of a Unix socket takes: the caller waits for none, and none is lost.
TEST_F(ManagerTest, ASlowManagerMissesNothing) {
  Manager manager(address_, executor_, Logger());
  constexpr int kMessages = 2000;
  for (int i = 0; i < kMessages; ++i) manager.status(std::to_string(i));
  for (int i = 0; i < kMessages; ++i) ASSERT_EQ(next().text, "STATUS=" + std::to_string(i));
}

TEST_F(ManagerTest, ABarrierIsPassedWhenTheManagerHasClosedIt) {
  Manager manager(address_, executor_, Logger());
  EXPECT_FALSE(manager.barrier(10ms)) << "it has not been read";
  std::thread reader([this] {
    EXPECT_EQ(next().text, "BARRIER=1");  // the one before
    EXPECT_EQ(next().text, "BARRIER=1");
  });
  EXPECT_TRUE(manager.barrier(10s));
  reader.join();
}

TEST_F(ManagerTest, WithoutAManagerNothingIsSaid) {
  for (const char* address : {"", "vsock:2:1234", "relative/path"}) {
    Manager manager(address, executor_, Logger());
    EXPECT_FALSE(manager.exists()) << address;
    manager.ready();
    manager.store(0, "a");
    EXPECT_FALSE(manager.barrier(10s)) << address;
  }
}

TEST_F(ManagerTest, AManagerThatIsGoneIsNotWaitedFor) {
  Manager manager("/nowhere/notify", executor_, Logger());
  manager.ready();
  EXPECT_TRUE(executor_->finish(10s));
}

}  // namespace
}  // namespace idetcd::service
