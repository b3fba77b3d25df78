// Real connections to a server on loopback: answers, what becomes of those that ask wrongly or not at all, and routes that
// change beneath them.
#include "http/server.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "base/file_descriptor.h"

namespace idetcd::http {
namespace {

using namespace std::chrono_literals;
using net::test::Socket;

const std::string kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

Handler saying(std::string text) {
  return [text = std::move(text)](const Request&) { return Response{.body = text}; };
}

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = Server::start();
    ASSERT_TRUE(server.has_value());
    server_ = std::move(*server);
    const auto listening = server_->listen(kAny);
    ASSERT_TRUE(listening.has_value()) << listening.error().message;
    address_ = *listening;
  }

  void serve(const std::string& text) { server_->use({{kAny, {{"/a", saying(text)}}}}); }
  Socket connect() { return net::test::tcpClient(address_); }
  // One response whose body is `body_size` bytes.
  static std::string receive(Socket& client, size_t body_size) {
    std::string text;
    while (!text.ends_with("\r\n\r\n")) {
      const std::string next = client.receiveExactly(1);
      if (next.empty()) return text + " (the connection has ended)";
      text += next;
    }
    return text + client.receiveExactly(body_size);
  }
  std::string ask(const std::string& request, size_t body_size) {
    Socket client = connect();
    client.send(request);
    return receive(client, body_size);
  }
  // Until use() has been heard of.
  void awaitAnswer(const std::string& body) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!ask(kGet, body.size()).ends_with("\r\n\r\n" + body))
      ASSERT_LT(std::chrono::steady_clock::now(), end) << body;
  }

  const SocketAddress kAny = net::test::address("127.0.0.1", 0);
  std::unique_ptr<Server> server_;
  SocketAddress address_;
};

TEST_F(HttpServerTest, AnswersWithAWholeMessage) {
  serve("hello");
  const std::string answer = ask(kGet, 5);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\nDate: ")) << answer;
  EXPECT_NE(answer.find(" GMT\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n"), answer.npos)
      << answer;
  EXPECT_TRUE(answer.ends_with("Connection: keep-alive\r\n\r\nhello")) << answer;
}

TEST_F(HttpServerTest, WritesTheFieldsOfAResponse) {
  server_->use(
      {{kAny, {{"/a", [](const Request& request) {
                  return Response{.status = 421, .body = request.host, .fields = {{"X-One", "1"}, {"X-Two", "a b"}}};
                }}}}});
  const std::string answer = ask("GET /a HTTP/1.1\r\nHost: other.example:80\r\n\r\n", 16);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 421 Misdirected Request\r\n")) << answer;
  EXPECT_NE(answer.find("\r\nX-One: 1\r\nX-Two: a b\r\n"), answer.npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nother.example:80")) << answer;
}

TEST_F(HttpServerTest, UntilThereAreRoutesItIsNotAvailable) {
  EXPECT_TRUE(ask(kGet, 0).starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST_F(HttpServerTest, SaysWhatIsWrong) {
  serve("hello");
  EXPECT_TRUE(ask("GET /b HTTP/1.1\r\nHost: x\r\n\r\n", 0).starts_with("HTTP/1.1 404 Not Found\r\n"));
  const std::string posted = ask("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 0);
  EXPECT_TRUE(posted.starts_with("HTTP/1.1 405 Method Not Allowed\r\n")) << posted;
  EXPECT_NE(posted.find("\r\nAllow: GET, HEAD\r\n"), posted.npos) << posted;
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  serve("hello");
  Socket client = connect();
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + kGet);
  const std::string head = receive(client, 0);
  EXPECT_NE(head.find("Content-Length: 5\r\n"), head.npos) << head;
  EXPECT_TRUE(receive(client, 5).starts_with("HTTP/1.1 200")) << "the next response begins right behind it";
}

TEST_F(HttpServerTest, ClosesWhenItSaysSo) {
  serve("hello");
  for (const char* request :
       {"GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "?\r\n\r\n"}) {
    Socket client = connect();
    client.send(request);
    const std::string answer = receive(client, 5);
    EXPECT_NE(answer.find("\r\nConnection: close\r\n"), answer.npos) << answer;
    while (const auto rest = client.receive()) {
      if (rest->bytes.empty()) break;
    }
    EXPECT_TRUE(client.isReadable(0)) << "the end";
  }
}

// Unread bytes of a refused client must not turn the answer into a reset.
TEST_F(HttpServerTest, ARefusalArrivesThoughTheClientGoesOn) {
  serve("hello");
  Socket client = connect();
  client.send("GET /" + std::string(100'000, 'a'));
  EXPECT_TRUE(receive(client, 0).starts_with("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  std::atomic<int> count = 0;
  server_->use({{kAny, {{"/a", [&count](const Request&) { return Response{.body = std::to_string(count++ % 10)}; }}}}});
  Socket client = connect();
  std::string requests;
  for (int i = 0; i < 2000; ++i) requests += kGet;
  client.send(requests);
  for (int i = 0; i < 2000; ++i) {
    const std::string answer = receive(client, 1);
    ASSERT_TRUE(answer.ends_with("\r\n\r\n" + std::to_string(i % 10))) << i << ": " << answer;
  }
}

TEST_F(HttpServerTest, ALargeAnswerArrivesWhole) {
  const std::string large(8 << 20, 'x');
  serve(large);
  EXPECT_TRUE(ask(kGet, large.size()).ends_with("\r\n\r\n" + large));
}

// Connections that say nothing cannot keep others out: the longest idle one gives way.
TEST_F(HttpServerTest, IdleConnectionsGiveWay) {
  serve("hello");
  std::vector<Socket> idle;
  for (size_t i = 0; i < Server::kMaxConnections; ++i) {
    idle.push_back(connect());
    idle.back().send("GET /");
  }
  EXPECT_TRUE(ask(kGet, 5).ends_with("hello"));
  EXPECT_TRUE(idle.front().isClosedByPeer());
  EXPECT_FALSE(idle.back().isReadable(0));
}

// A flood of one endpoint takes nothing from the clients of another.
TEST_F(HttpServerTest, EachAddressHasItsOwnConnections) {
  const auto other = server_->listen(net::test::address("127.0.0.2", 0));
  ASSERT_TRUE(other.has_value());
  server_->use({{kAny, {{"/a", saying("hello")}}}, {net::test::address("127.0.0.2", 0), {{"/a", saying("other")}}}});
  Socket apart = net::test::tcpClient(*other);
  apart.send(kGet);
  EXPECT_TRUE(receive(apart, 5).ends_with("other"));
  for (size_t i = 0; i < 3 * Server::kMaxConnections; ++i) EXPECT_TRUE(ask(kGet, 5).ends_with("hello"));
  std::vector<Socket> idle;
  for (size_t i = 0; i < 3 * Server::kMaxConnections; ++i) idle.push_back(connect());
  EXPECT_TRUE(ask(kGet, 5).ends_with("hello"));
  apart.send(kGet);
  EXPECT_TRUE(receive(apart, 5).ends_with("other"));
}

TEST_F(HttpServerTest, WhoHasAskedLatelyStays) {
  serve("hello");
  Socket asking = connect();
  std::vector<Socket> idle;
  for (size_t i = 1; i < Server::kMaxConnections; ++i) idle.push_back(connect());
  asking.send(kGet);
  EXPECT_TRUE(receive(asking, 5).ends_with("hello"));
  EXPECT_TRUE(ask(kGet, 5).ends_with("hello"));
  EXPECT_TRUE(idle.front().isClosedByPeer());
  asking.send(kGet);
  EXPECT_TRUE(receive(asking, 5).ends_with("hello"));
}

TEST_F(HttpServerTest, ARequestHasItsTimeToArrive) {
  serve("hello");
  const auto begin = std::chrono::steady_clock::now();
  Socket slow = connect();
  slow.send("GET /a HTTP/1.1\r\n");
  while (!slow.isReadable(500)) ASSERT_TRUE(slow.send("X: y\r\n")) << "a byte now and then gains nothing";
  EXPECT_GE(std::chrono::steady_clock::now() - begin, Server::kPatience);
  EXPECT_TRUE(slow.isClosedByPeer());
}

TEST_F(HttpServerTest, ConnectionsStayWhenRoutesChange) {
  serve("one");
  Socket client = connect();
  client.send(kGet);
  EXPECT_TRUE(receive(client, 3).ends_with("one"));
  serve("two");
  awaitAnswer("two");
  client.send(kGet);
  EXPECT_TRUE(receive(client, 3).ends_with("two"));
}

TEST_F(HttpServerTest, AnAddressWithoutRoutesIsClosed) {
  serve("one");
  Socket client = connect();
  client.send(kGet);
  EXPECT_TRUE(receive(client, 3).ends_with("one"));
  server_->use({});
  EXPECT_TRUE(client.isClosedByPeer());
  EXPECT_TRUE(connect().isClosedByPeer()) << "nothing listens";
}

TEST_F(HttpServerTest, APortThatIsTakenIsAnError) {
  const auto other = Server::start();
  const auto listening = (*other)->listen(address_);
  ASSERT_FALSE(listening.has_value());
  EXPECT_EQ(listening.error().code, ErrorCode::kAddressInUse);
}

// From every address to one of them, as a reload may want it, and back.
TEST_F(HttpServerTest, ItsOwnListenersShareAPort) {
  const SocketAddress everywhere = net::test::address("0.0.0.0", address_.port);
  const SocketAddress here = net::test::address("127.0.0.1", address_.port);
  serve("narrow");
  server_->use({});
  EXPECT_TRUE(connect().isClosedByPeer());
  ASSERT_TRUE(server_->listen(everywhere).has_value());
  server_->use({{everywhere, {{"/a", saying("wide")}}}});
  awaitAnswer("wide");
  ASSERT_TRUE(server_->listen(here).has_value());
  server_->use({{here, {{"/a", saying("narrow")}}}});
  awaitAnswer("narrow");
}

// A Unix socket in a directory of its own, and clients of it.
class HttpLocalTest : public HttpServerTest {
 protected:
  void SetUp() override {
    HttpServerTest::SetUp();
    std::string directory = ::testing::TempDir() + "idetcd-http-XXXXXX";
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    directory_ = directory;
    address_of_socket_.sun_family = AF_UNIX;
    const std::string path = directory_ + "/s";
    ASSERT_LT(path.size(), sizeof(address_of_socket_.sun_path));
    path.copy(address_of_socket_.sun_path, path.size());
    FileDescriptor bound = open();
    ASSERT_EQ(::bind(bound.get(), socketAddress(), sizeof(address_of_socket_)), 0);
    // A client may connect before the server's thread has got the socket.
    ASSERT_EQ(::listen(bound.get(), 16), 0);
    server_->listenLocally(std::move(bound));
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  static FileDescriptor open() { return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  const sockaddr* socketAddress() const { return reinterpret_cast<const sockaddr*>(&address_of_socket_); }
  socklen_t addressSize() const { return sizeof(address_of_socket_); }
  // All that comes until the server closes the connection, or none within ten seconds.
  std::string askLocally(const std::string& request) const {
    const FileDescriptor client = open();
    constexpr timeval kPatience{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    if (::connect(client.get(), socketAddress(), sizeof(address_of_socket_)) != 0) return "not connected";
    if (::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
      return "not sent";
    std::string text;
    std::array<char, 1024> part{};
    for (ssize_t n = 0; (n = ::recv(client.get(), part.data(), part.size(), 0)) > 0;)
      text.append(part.data(), static_cast<size_t>(n));
    return text;
  }

 private:
  std::string directory_;
  sockaddr_un address_of_socket_{};
};

const std::string kChange = "POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const std::string kLook = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

TEST_F(HttpLocalTest, UntilThereArePathsItIsNotAvailable) {
  EXPECT_TRUE(askLocally(kLook).starts_with("HTTP/1.1 503 "));
}

// The server's thread does what it is told in turn, and looks at connections afterwards.
TEST_F(HttpLocalTest, ChangesAreForTheUnixSocketOnly) {
  const Handler handler = [](const Request& request) { return Response{.body = request.is_post ? "post" : "look"}; };
  server_->useLocal({{"/a", handler}});
  server_->use({{kAny, {{"/a", handler}}}});
  awaitAnswer("look");
  EXPECT_TRUE(askLocally(kChange).ends_with("\r\n\r\npost"));
  EXPECT_TRUE(askLocally(kLook).ends_with("\r\n\r\nlook"));
  EXPECT_NE(askLocally("PUT /a HTTP/1.1\r\nHost: x\r\n\r\n").find("\r\nAllow: GET, HEAD, POST\r\n"), std::string::npos);
  EXPECT_TRUE(ask(kChange, 0).starts_with("HTTP/1.1 405 "));
}

TEST_F(HttpLocalTest, ItsPathsAreItsOwn) {
  server_->useLocal({{"/a", saying("local")}});
  serve("tcp");
  awaitAnswer("tcp");
  EXPECT_TRUE(askLocally(kLook).ends_with("\r\n\r\nlocal"));
  // Routes of addresses come and go without it.
  server_->use({});
  EXPECT_TRUE(askLocally(kLook).ends_with("\r\n\r\nlocal"));
  EXPECT_TRUE(askLocally("GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

// One command for each rank of a job starts them all at once.
TEST_F(HttpLocalTest, ManyClientsAtOnceAreAllAnswered) {
  server_->useLocal({{"/a", LateHandler([](const Request&, const Reply& reply) { reply({.body = "local"}); })}});
  std::vector<std::future<std::string>> answers;
  for (size_t i = 0; i < 12 * Server::kMaxConnections; ++i)
    answers.push_back(std::async(std::launch::async, [this] { return askLocally(kLook); }));
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ends_with("\r\n\r\nlocal"));
}

TEST_F(HttpLocalTest, HalfRequestsHoldUpNobody) {
  server_->useLocal({{"/a", saying("local")}});
  const auto begin = std::chrono::steady_clock::now();
  std::vector<FileDescriptor> halves;
  for (size_t i = 0; i < Server::kMaxLocal + 16; ++i) {
    halves.push_back(open());
    ASSERT_EQ(::connect(halves.back().get(), socketAddress(), addressSize()), 0);
    ASSERT_EQ(::send(halves.back().get(), kLook.data(), 10, MSG_NOSIGNAL), 10);
  }
  EXPECT_TRUE(askLocally(kLook).ends_with("\r\n\r\nlocal"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Server::kPatience / 2) << "they have longer to arrive";
}

// A handler's requests, answered when the test says so.
class LateAnswers {
 public:
  LateHandler handler() {
    return [this](const Request&, Reply reply) {
      const std::lock_guard lock(mutex_);
      replies_.push_back(std::move(reply));
      came_.notify_all();
    };
  }
  Reply next() {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, 10s, [this] { return !replies_.empty(); });
    if (replies_.empty()) return nullptr;
    Reply reply = std::move(replies_.front());
    replies_.erase(replies_.begin());
    return reply;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Reply> replies_;
};

// Commands that wait for an etcd that is away.
TEST_F(HttpLocalTest, ThoseThatWaitHoldUpNobody) {
  LateAnswers late;
  server_->useLocal({{"/late", late.handler()}, {"/a", saying("at once")}});
  std::vector<std::future<std::string>> waiting;
  std::vector<Reply> replies;
  while (replies.size() < 20) {
    waiting.push_back(std::async(std::launch::async, [this] {
      return askLocally("GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    }));
    replies.push_back(late.next());
    if (!replies.back()) break;
  }
  EXPECT_EQ(replies.size(), 20);
  EXPECT_TRUE(askLocally(kLook).ends_with("\r\n\r\nat once"));
  for (const Reply& reply : replies) {
    if (reply) reply({.body = "late"});
  }
  replies.clear();
  for (auto& answer : waiting) answer.get();
}

class HttpLateTest : public HttpServerTest {
 protected:
  void SetUp() override {
    HttpServerTest::SetUp();
    server_->use({{kAny, {{"/late", late_.handler()}, {"/a", saying("at once")}}}});
  }
  void TearDown() override { server_.reset(); }

  LateAnswers late_;
};

const std::string kGetLate = "GET /late HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpLateTest, OthersAreAnsweredMeanwhileAndWhatFollowsAfterwards) {
  Socket client = connect();
  client.send(kGetLate + kGet);
  const Reply reply = late_.next();
  ASSERT_TRUE(reply);
  EXPECT_TRUE(ask(kGet, 7).ends_with("\r\n\r\nat once"));
  EXPECT_FALSE(client.isReadable(0));
  reply({.body = "late"});
  EXPECT_TRUE(receive(client, 4).ends_with("\r\n\r\nlate"));
  EXPECT_TRUE(receive(client, 7).ends_with("\r\n\r\nat once"));
}

TEST_F(HttpLateTest, TheFirstAnswerCounts) {
  Socket client = connect();
  client.send(kGetLate + kGet);
  const Reply reply = late_.next();
  ASSERT_TRUE(reply);
  reply({.body = "one"});
  reply({.body = "two"});
  EXPECT_TRUE(receive(client, 3).ends_with("\r\n\r\none"));
  EXPECT_TRUE(receive(client, 7).ends_with("\r\n\r\nat once"));
}

TEST_F(HttpLateTest, WhoIsForgottenIsTold) {
  Socket client = connect();
  client.send(kGetLate);
  ASSERT_TRUE(late_.next());
  EXPECT_TRUE(receive(client, 0).starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
}

// However many others come meanwhile.
TEST_F(HttpLateTest, WhoWaitsForItsAnswerGetsIt) {
  Socket waiting = connect();
  waiting.send(kGetLate);
  const Reply reply = late_.next();
  ASSERT_TRUE(reply);
  std::vector<Socket> clients;
  while (clients.size() < Server::kMaxConnections) {  // the longest idle gives way
    clients.push_back(connect());
    clients.back().send(kGet);
    EXPECT_TRUE(receive(clients.back(), 7).ends_with("at once"));
  }
  EXPECT_TRUE(clients.front().isClosedByPeer());
  reply({.body = "late"});
  EXPECT_TRUE(receive(waiting, 4).ends_with("late"));
}

TEST_F(HttpLateTest, AnAnswerToAClientThatIsGoneIsNone) {
  std::vector<Socket> clients;
  std::vector<Reply> replies;
  while (clients.size() < Server::kMaxConnections) {
    clients.push_back(connect());
    clients.back().send(kGetLate);
    replies.push_back(late_.next());
    ASSERT_TRUE(replies.back());
  }
  clients.push_back(connect());  // all wait: the longest waiting gives way
  clients.back().send(kGet);
  EXPECT_TRUE(receive(clients.back(), 7).ends_with("at once"));
  EXPECT_TRUE(clients.front().isClosedByPeer());
  replies.front()({.body = "late"});
  clients.back().send(kGet);
  EXPECT_TRUE(receive(clients.back(), 7).ends_with("at once"));
}

TEST_F(HttpLateTest, AnAnswerAfterTheServerIsNone) {
  Socket client = connect();
  client.send(kGetLate);
  const Reply reply = late_.next();
  ASSERT_TRUE(reply);
  server_.reset();
  EXPECT_TRUE(client.isClosedByPeer());
  reply({.body = "late"});
}

}  // namespace
}  // namespace idetcd::http
