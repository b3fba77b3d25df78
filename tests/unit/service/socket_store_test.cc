#include "service/socket_store.h"

#include <array>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "service_socket.h"

namespace idetcd::service {
namespace {

using Kind = SocketPlace::Kind;

SocketAddress on(const char* ip, uint16_t port) { return {.ip = IpAddress::parse(ip).value(), .port = port}; }

struct Bound {
  FileDescriptor fd;
  SocketAddress address;
  ino_t inode;
};

// On a port of the kernel's choice, unless one is given.
Bound open(int type, SocketAddress address, bool only_v6 = true) {
  Bound bound{.fd = FileDescriptor(::socket(address.ip.isV4() ? AF_INET : AF_INET6, type | SOCK_CLOEXEC, 0)),
              .address = address,
              .inode = 0};
  const int fd = bound.fd.get();
  const int v6_only = only_v6 ? 1 : 0;
  if (address.ip.isV6()) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  sockaddr_storage storage;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&storage), address.toSockaddr(&storage)), 0);
  EXPECT_TRUE(type != SOCK_STREAM || listen(fd, 1) == 0);
  socklen_t size = sizeof storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  bound.address = SocketAddress::fromSockaddr(reinterpret_cast<sockaddr*>(&storage)).value();
  bound.inode = test::inode(fd);
  return bound;
}

class SocketStoreTest : public ::testing::Test {
 protected:
  SocketStore& store(std::vector<GivenDescriptor> given = {}) {
    manager_ = std::make_unique<Manager>(socket_.address(), executor_, Logger());
    store_ = std::make_unique<SocketStore>(std::move(given), *manager_, Logger());
    return *store_;
  }
  static GivenDescriptor given(Bound& bound, std::string name = "unit.socket") {
    return {.fd = std::move(bound.fd), .name = std::move(name)};
  }

  test::NotifySocket socket_;
  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  std::unique_ptr<Manager> manager_;
  std::unique_ptr<SocketStore> store_;
};

TEST_F(SocketStoreTest, ASocketIsKnownByWhatItIs) {
  Bound udp = open(SOCK_DGRAM, on("127.0.0.1", 0));
  Bound tcp = open(SOCK_STREAM, on("127.0.0.1", 0));
  Bound udp6 = open(SOCK_DGRAM, on("::1", 0));
  std::vector<GivenDescriptor> all;
  for (Bound* one : {&udp6, &tcp, &udp}) all.push_back(given(*one, "the same name"));
  SocketStore& store = this->store(std::move(all));
  EXPECT_FALSE(store.take({.kind = Kind::kTcp, .address = udp.address, .worker = 0}).isOpen());
  EXPECT_TRUE(store.has(udp.address));
  const FileDescriptor taken = store.take({.kind = Kind::kUdp, .address = udp.address, .worker = 0});
  EXPECT_EQ(test::inode(taken.get()), udp.inode);
  EXPECT_NE(fcntl(taken.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_FALSE(store.has(udp.address));
  EXPECT_FALSE(store.take({.kind = Kind::kUdp, .address = udp.address, .worker = 0}).isOpen()) << "each once";
  EXPECT_EQ(test::inode(store.take({.kind = Kind::kTcp, .address = tcp.address, .worker = 0}).get()), tcp.inode);
  EXPECT_EQ(test::inode(store.take({.kind = Kind::kUdp, .address = udp6.address, .worker = 0}).get()), udp6.inode);
}

TEST_F(SocketStoreTest, ItsOwnComesFirst) {
  Bound first = open(SOCK_DGRAM, on("127.0.0.1", 0));
  // A duplicate stands for the second worker's: two sockets of one address would need SO_REUSEPORT.
  Bound second{.fd = FileDescriptor(dup(first.fd.get())), .address = first.address, .inode = first.inode};
  const SocketPlace place1{.kind = Kind::kUdp, .address = first.address, .worker = 1};
  const int expected = second.fd.get();
  std::vector<GivenDescriptor> all;
  all.push_back(given(first, SocketPlace{.kind = Kind::kUdp, .address = first.address, .worker = 0}.name()));
  all.push_back(given(second, place1.name()));
  EXPECT_EQ(store(std::move(all)).take(place1).get(), expected);
}

TEST_F(SocketStoreTest, WhatNobodyWantsIsClosedAndRemoved) {
  Bound stored = open(SOCK_DGRAM, on("127.0.0.1", 0));
  Bound of_unit = open(SOCK_STREAM, on("127.0.0.1", 0));
  Bound wanted = open(SOCK_DGRAM, on("127.0.0.1", 0));
  const int closed = stored.fd.get();
  const std::string name = SocketPlace{.kind = Kind::kUdp, .address = stored.address, .worker = 0}.name();
  std::vector<GivenDescriptor> all;
  all.push_back(given(stored, name));
  all.push_back(given(of_unit));
  all.push_back(given(wanted, SocketPlace{.kind = Kind::kUdp, .address = wanted.address, .worker = 0}.name()));
  SocketStore& store = this->store(std::move(all));
  std::thread manager([this, &name] {
    EXPECT_EQ(socket_.next().text, "FDSTOREREMOVE=1\nFDNAME=" + name) << "the socket unit has its own";
    EXPECT_EQ(socket_.next().text, "BARRIER=1");
  });
  store.closeAllBut({{.kind = Kind::kUdp, .address = wanted.address, .worker = 0}});
  manager.join();
  EXPECT_FALSE(store.has(stored.address));
  EXPECT_TRUE(store.has(wanted.address));
  EXPECT_EQ(fcntl(closed, F_GETFD), -1);
}

TEST_F(SocketStoreTest, OfMoreThanThereAreWorkersTheRestIsClosed) {
  Bound one = open(SOCK_DGRAM, on("127.0.0.1", 0));
  Bound other{.fd = FileDescriptor(dup(one.fd.get())), .address = one.address, .inode = one.inode};
  std::vector<GivenDescriptor> all;
  all.push_back(given(one));
  all.push_back(given(other));
  SocketStore& store = this->store(std::move(all));
  const SocketPlace place{.kind = Kind::kUdp, .address = one.address, .worker = 0};
  store.closeAllBut({place});
  EXPECT_TRUE(store.take(place).isOpen());
  EXPECT_FALSE(store.has(one.address));
}

TEST_F(SocketStoreTest, WhatIsNoListenerIsClosed) {
  Bound both = open(SOCK_DGRAM, on("::", 0), false);
  const FileDescriptor unix_socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  FileDescriptor unconnected(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::array numbers{both.fd.get(), unconnected.get()};
  std::vector<GivenDescriptor> all;
  all.push_back(given(both));
  all.push_back({.fd = std::move(unconnected), .name = "a"});
  all.push_back({.fd = FileDescriptor(dup(unix_socket.get())), .name = "b"});
  SocketStore& store = this->store(std::move(all));
  EXPECT_FALSE(store.has(both.address)) << "it would take what comes over IPv4";
  for (const int number : numbers) EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

TEST_F(SocketStoreTest, KeepsWhatTheManagerHasNotYet) {
  Bound stored = open(SOCK_DGRAM, on("127.0.0.1", 0));
  Bound fresh = open(SOCK_STREAM, on("::1", 0));
  const SocketPlace place{.kind = Kind::kUdp, .address = stored.address, .worker = 0};
  const SocketPlace fresh_place{.kind = Kind::kTcp, .address = fresh.address, .worker = 3};
  const std::string former = SocketPlace{.kind = Kind::kUdp, .address = stored.address, .worker = 1}.name();
  std::vector<GivenDescriptor> all;
  all.push_back(given(stored, former));
  SocketStore& store = this->store(std::move(all));
  const FileDescriptor taken = store.take(place);
  store.keep(place, taken.get());
  store.keep(fresh_place, fresh.fd.get());
  const test::Message message = socket_.next();
  EXPECT_EQ(message.text, "FDSTORE=1\nFDNAME=" + fresh_place.name() + "\nFDPOLL=0");
  EXPECT_EQ(test::inode(message.attached.get()), fresh.inode);
  EXPECT_EQ(fresh_place.name().find(':'), std::string::npos) << "LISTEN_FDNAMES is divided by colons";
  store.remove(place);
  EXPECT_EQ(socket_.next().text, "FDSTOREREMOVE=1\nFDNAME=" + former) << "as it is stored, not as it is used";
  store.remove(place);
  store.remove(fresh_place);
  EXPECT_EQ(socket_.next().text, "FDSTOREREMOVE=1\nFDNAME=" + fresh_place.name()) << "and nothing twice";
}

TEST_F(SocketStoreTest, ASocketUnitKeepsItsOwn) {
  Bound bound = open(SOCK_DGRAM, on("127.0.0.1", 0));
  const SocketPlace place{.kind = Kind::kUdp, .address = bound.address, .worker = 0};
  std::vector<GivenDescriptor> all;
  all.push_back(given(bound));
  SocketStore& store = this->store(std::move(all));
  const FileDescriptor taken = store.take(place);
  store.keep(place, taken.get());
  EXPECT_TRUE(store.outlivesProcess(place));
  store.remove(place);
  EXPECT_FALSE(store.outlivesProcess(place));
  manager_->ready();
  EXPECT_EQ(socket_.next().text, "READY=1") << "nothing before it";
}

TEST_F(SocketStoreTest, ASocketOutlivesTheProcessIfSomebodyElseHasIt) {
  Bound unit = open(SOCK_DGRAM, on("127.0.0.1", 0));
  Bound former = open(SOCK_DGRAM, on("127.0.0.2", 0));
  Bound fresh = open(SOCK_DGRAM, on("127.0.0.3", 0));
  const auto place = [](const Bound& bound) {
    return SocketPlace{.kind = Kind::kUdp, .address = bound.address, .worker = 0};
  };
  Manager nobody("", executor_, Logger());
  std::vector<GivenDescriptor> all;
  all.push_back(given(unit));
  all.push_back(given(former, place(former).name()));  // by the process before
  SocketStore alone(std::move(all), nobody, Logger());
  const FileDescriptor of_unit = alone.take(place(unit));
  const FileDescriptor of_process = alone.take(place(former));
  alone.keep(place(fresh), fresh.fd.get());
  EXPECT_TRUE(alone.outlivesProcess(place(unit)));
  EXPECT_FALSE(alone.outlivesProcess(place(former)));
  EXPECT_FALSE(alone.outlivesProcess(place(fresh)));
  SocketStore& managed = store();
  managed.keep(place(fresh), fresh.fd.get());
  EXPECT_TRUE(managed.outlivesProcess(place(fresh)));
}

}  // namespace
}  // namespace idetcd::service
