// Real requests over Unix sockets: to http::Server, and to peers that answer badly or not at all.
#include "cli/local_node.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/file_descriptor.h"
#include "cli/command.h"
#include "http/server.h"

namespace idetcd::cli {
namespace {

using namespace std::chrono_literals;

FileDescriptor bound(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);  // NOLINT
  return socket;
}

class LocalNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/idetcd-cli-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  LocalNode node() const { return {std::nullopt, directory_}; }
  void serve(const std::string& name, http::Paths paths) {
    auto server = http::Server::start();
    ASSERT_TRUE(server.has_value());
    server_ = std::move(*server);
    FileDescriptor socket = bound(path(name));
    ASSERT_EQ(::listen(socket.get(), 16), 0);
    server_->listenLocally(std::move(socket));
    server_->useLocal(std::move(paths));
  }
  // A peer that says `text` to one client, whatever it asks, and ends.
  HttpResponse told(const std::string& text) {
    const FileDescriptor socket = bound(path("peer"));
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    std::thread peer([&] {
      const FileDescriptor client(::accept(socket.get(), nullptr, nullptr));
      std::array<char, 4096> request;
      EXPECT_GT(::recv(client.get(), request.data(), request.size(), 0), 0);
      for (const char byte : text) {
        if (::send(client.get(), &byte, 1, MSG_NOSIGNAL) < 0) break;
      }
    });
    const auto response = ask(path("peer"), Method::kGet, "/", 10s);
    peer.join();
    std::filesystem::remove(path("peer"));
    return response.value_or(HttpResponse{.status = 0, .body = response ? "" : response.error().message});
  }

  std::string directory_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(LocalNodeTest, AsksTheOnlySocket) {
  serve("5353.sock", {{"/v1/a",
                       [](const http::Request& request) {
                         return http::Response{.body = "{\"post\":" + std::string(request.is_post ? "true" : "false") +
                                                       ",\"query\":\"" + request.query + "\"}\n"};
                       }},
                      {"/v1/large", [](const http::Request&) {
                         return http::Response{.body = "{\"text\":\"" + std::string(3'000'000, 'x') + "\"}"};
                       }}});
  EXPECT_EQ(node().get("/v1/a?x=" + percentEncoded("a b&c"))->dump(), R"({"post":false,"query":"x=a%20b%26c"})");
  EXPECT_EQ(node().post("/v1/a")->dump(), R"({"post":true,"query":""})");
  EXPECT_EQ(node().get("/v1/large")->at("text").get<std::string>().size(), 3'000'000u);
  EXPECT_EQ(node().port(), 5353);
}

TEST_F(LocalNodeTest, RefusalsAreTheirLine) {
  serve("53.sock",
        {{"/v1/none",
          [](const http::Request&) { return http::Response{.status = 404, .body = R"({"error":"no \u001b name"})"}; }},
         {"/v1/later",
          [](const http::Request&) { return http::Response{.status = 503, .body = R"({"error":"etcd is away"})"}; }},
         {"/v1/text", [](const http::Request&) { return http::Response{.body = "no JSON"}; }}});
  const auto none = node().get("/v1/none");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "no \\x1b name");
  EXPECT_EQ(none.error().code, kNo);
  EXPECT_FALSE(none.error().may_pass);
  const auto later = node().get("/v1/later");
  ASSERT_FALSE(later.has_value());
  EXPECT_EQ(later.error().code, kFailed);
  EXPECT_TRUE(later.error().may_pass);
  EXPECT_EQ(node().get("/v1/text").error().code, kFailed);
  const auto nowhere = node().get("/v1/nowhere");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().message, "no directive of the server answers /v1/nowhere");
  EXPECT_EQ(nowhere.error().code, kFailed) << "a server that knows no such path says no";
  for (const char* path : {"/v1/members?pattern=x", "/v1/slot?name=x", "/v1/drain", "/v1/undrain", "/v1/release"}) {
    EXPECT_EQ(node().post(path).error().message, kNoCluster);
    EXPECT_EQ(node().post(path).error().code, kFailed);
  }
}

TEST_F(LocalNodeTest, AServerThatStartsIsWaitedFor) {
  int asked = 0;
  serve("53.sock", {{"/v1/status", [&asked](const http::Request&) {
                       return ++asked < 3 ? http::Response{.status = 503, .body = "Service Unavailable\n"}
                                          : http::Response{.body = "{}"};
                     }}});
  EXPECT_TRUE(node().get("/v1/status").has_value());
  asked = -1'000'000;
  const auto reply = node().get("/v1/status", 3s);
  ASSERT_FALSE(reply.has_value());
  EXPECT_TRUE(reply.error().may_pass);
  EXPECT_EQ(reply.error().message, "the server at " + path("53.sock") + " is still starting");
}

TEST_F(LocalNodeTest, NobodyIsThere) {
  EXPECT_TRUE(node().get("/").error().may_pass);
  EXPECT_NE(node().get("/").error().message.find("there is no socket in " + directory_), std::string::npos);
  { const FileDescriptor left = bound(path("53.sock")); }
  EXPECT_EQ(node().get("/").error().code, kFailed);
  EXPECT_EQ(node().get("/").error().message, "nobody listens at " + path("53.sock") + ": does idetcd run?");
  EXPECT_TRUE(node().get("/").error().may_pass);
}

TEST_F(LocalNodeTest, SeveralAreThere) {
  const FileDescriptor one = bound(path("53.sock"));
  const FileDescriptor two = bound(path("5353.sock"));
  ASSERT_EQ(::listen(one.get(), 1), 0);
  ASSERT_EQ(::listen(two.get(), 1), 0);
  EXPECT_EQ(node().get("/").error().message,
            "there are several servers: choose one with --socket: " + path("53.sock") + " " + path("5353.sock"));
  EXPECT_FALSE(node().get("/").error().may_pass);
  EXPECT_EQ(LocalNode(path("5353.sock"), directory_).port(), 5353);
  EXPECT_FALSE(LocalNode(path("x.sock"), directory_).port().has_value());
}

TEST_F(LocalNodeTest, WhatIsLeftBesideTheServerIsNone) {
  { const FileDescriptor killed = bound(path("53.sock")); }
  { const std::ofstream plain(path("foo.sock")); }
  EXPECT_EQ(node().socketPath(), path("53.sock"));
  { const FileDescriptor killed = bound(path("54.sock")); }
  EXPECT_EQ(node().get("/").error().message,
            "nobody listens at " + path("53.sock") + " or " + path("54.sock") + ": does idetcd run?");
  EXPECT_TRUE(node().get("/").error().may_pass);
  const FileDescriptor living = bound(path("5353.sock"));
  ASSERT_EQ(::listen(living.get(), 16), 0);
  EXPECT_EQ(node().socketPath(), path("5353.sock"));
  EXPECT_EQ(node().port(), 5353);
}

TEST_F(LocalNodeTest, DrainSaysHowLongItLasts) {
  serve("53.sock", {{"/v1/drain", [](const http::Request&) {
                       return http::Response{.body = R"({"nodes":[{"name":"w1.","drained":true,"lasts":"process"},
                                                                 {"name":"v1.","drained":true}]})"};
                     }}});
  const auto arguments = Arguments::parse(findCommand("drain")->grammar, {});
  const LocalNode asked = node();
  EXPECT_EQ(drain({.arguments = *arguments, .node = asked, .corefile = nullptr}).out,
            "w1: drained until this server ends (no `state` directory): the name is kept, without addresses\n"
            "v1: drained: the name is kept, without addresses\n");
}

TEST_F(LocalNodeTest, NoAnswerInTime) {
  const FileDescriptor socket = bound(path("53.sock"));
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  const auto reply = node().get("/", 50ms);
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().message, "the server does not answer in time (" + path("53.sock") + ")");
  EXPECT_EQ(reply.error().code, kFailed);
}

TEST_F(LocalNodeTest, ResponsesInPieces) {
  EXPECT_EQ(told("HTTP/1.1 200 OK\r\ncontent-length:  2 \r\n\r\nabrest").body, "ab");
  EXPECT_EQ(told("HTTP/1.1 404 Not Found\r\n\r\nuntil the end").body, "until the end");
  EXPECT_EQ(told("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").status, 200);
}

TEST_F(LocalNodeTest, ResponsesThatAreNone) {
  for (const char* text : {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "HELLO\r\n\r\n",
                           "HTTP/1.1 9x9 ?\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"})
    EXPECT_EQ(told(text).status, 0) << text;
}

}  // namespace
}  // namespace idetcd::cli
