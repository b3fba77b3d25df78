#include "resolver/doh_stream.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nghttp2/nghttp2.h>

#include <gtest/gtest.h>

#include "dns/wire.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {
namespace {

using Bytes = std::vector<uint8_t>;
using Fields = std::vector<std::pair<std::string, std::string>>;

// The stream below HTTP/2: its other end is the test.
struct Wire : net::Stream {
  explicit Wire(std::function<bool(Bytes&&)> take, net::StreamHandler*& above_stream)
      : on_write(std::move(take)), above(above_stream) {}
  ~Wire() override { above = nullptr; }
  void start(net::StreamHandler& handler) override { above = &handler; }
  bool write(Bytes&& bytes) override { return on_write(std::move(bytes)); }
  std::string failure() const override { return "the wire is cut"; }

  std::function<bool(Bytes&&)> on_write;
  net::StreamHandler*& above;
};

// A request as the server has got it.
struct Request {
  std::map<std::string, std::string> fields;
  Bytes body;
  bool whole = false;
  uint32_t cancelled = 0;  // by RST_STREAM with this code
};

// nghttp2 as a server, at the other end of the Wire.
class Server {
 public:
  explicit Server(std::vector<nghttp2_settings_entry> settings = {}) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                      const uint8_t* value, size_t value_size, uint8_t, void* self) {
          static_cast<Server*>(self)->requests[frame->hd.stream_id].fields[std::string(name, name + name_size)] =
              std::string(value, value + value_size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* self) {
          Bytes& body = static_cast<Server*>(self)->requests[id].body;
          body.insert(body.end(), data, data + size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          auto& all = static_cast<Server*>(self)->requests;
          if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
              (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
            all[frame->hd.stream_id].whole = true;
          if (frame->hd.type == NGHTTP2_RST_STREAM) all[frame->hd.stream_id].cancelled = frame->rst_stream.error_code;
          return 0;
        });
    nghttp2_session_server_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, 0, settings.data(), settings.size());
  }
  ~Server() { nghttp2_session_del(session_); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void receive(const Bytes& bytes) {
    EXPECT_EQ(nghttp2_session_mem_recv(session_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  Bytes toSend() {
    Bytes all;
    const uint8_t* data = nullptr;
    for (ssize_t size; (size = nghttp2_session_mem_send(session_, &data)) > 0;)
      all.insert(all.end(), data, data + size);
    return all;
  }

  static std::vector<nghttp2_nv> fieldsOf(const Fields& fields) {
    std::vector<nghttp2_nv> list;
    for (const auto& [name, value] : fields) {
      list.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                      reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(), 0});
    }
    return list;
  }
  void respond(int32_t id, Bytes body, const Fields& fields) {
    bodies_[id] = std::move(body);
    nghttp2_data_provider provider{{.ptr = nullptr},
                                   [](nghttp2_session*, int32_t stream_id, uint8_t* to, size_t size, uint32_t* flags,
                                      nghttp2_data_source*, void* self) {
                                     Bytes& rest = static_cast<Server*>(self)->bodies_[stream_id];
                                     const size_t count = std::min(size, rest.size());
                                     std::copy_n(rest.begin(), count, to);
                                     rest.erase(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(count));
                                     if (rest.empty()) *flags |= NGHTTP2_DATA_FLAG_EOF;
                                     return static_cast<ssize_t>(count);
                                   }};
    const auto list = fieldsOf(fields);
    nghttp2_submit_response(session_, id, list.data(), list.size(), &provider);
  }
  void answer(int32_t id, const Bytes& message, Fields more = {}) {
    Fields fields{{":status", "200"}, {"content-type", "application/dns-message"}};
    fields.insert(fields.end(), more.begin(), more.end());
    respond(id, message, fields);
  }
  nghttp2_session* session() { return session_; }

  std::map<int32_t, Request> requests;

 private:
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Bytes> bodies_;
};

class DohStreamTest : public testing::Test, public net::StreamHandler {
 protected:
  void open(DohMethod method = DohMethod::kPost, std::vector<nghttp2_settings_entry> settings = {}) {
    server_.emplace(std::move(settings));
    stream_ = std::make_unique<DohStream>(std::make_unique<Wire>(
                                              [this](Bytes&& bytes) {
                                                written_ += bytes.size();
                                                if (reads_) sent_.insert(sent_.end(), bytes.begin(), bytes.end());
                                                return reads_;
                                              },
                                              below_),
                                          DohStream::Options{.authority = "dns.example", .method = method});
    stream_->start(*this);
  }
  void connect() {
    below_->onConnected();
    exchange();
  }
  // Until both have nothing to say.
  void exchange() {
    for (int i = 0; i < 1000; ++i) {
      if (!sent_.empty()) server_->receive(std::exchange(sent_, {}));
      const Bytes bytes = server_->toSend();
      if (bytes.empty() && sent_.empty()) return;
      deliver(bytes);
    }
    ADD_FAILURE() << "they go on talking";
  }
  void deliver(const Bytes& bytes) {
    for (size_t at = 0; at < bytes.size() && below_ != nullptr; at += 1000)
      below_->onData(std::span(bytes).subspan(at, std::min<size_t>(1000, bytes.size() - at)));
  }
  static Bytes question(uint16_t id) { return UpstreamMessage("www.example.com.", 1, 0x0100, id).bytes; }
  static Bytes reply(uint8_t last = 1) {
    return UpstreamMessage("www.example.com.", 1, 0x8180, 0).a("www.example.com.", 60, {192, 0, 2, last}).bytes;
  }
  void ask(uint16_t id) {
    Bytes framed(2);
    const Bytes message = question(id);
    dns::store16(framed.data(), static_cast<uint16_t>(message.size()));
    framed.insert(framed.end(), message.begin(), message.end());
    stream_->write(std::move(framed));
  }

  void onData(std::span<const uint8_t> bytes) override {
    ASSERT_GE(bytes.size(), 2u);
    ASSERT_EQ(dns::load16(bytes.data()), bytes.size() - 2) << "one whole message";
    answers_[dns::load16(bytes.data() + 2)] = Bytes(bytes.begin() + 2, bytes.end());
    if (destroys_) stream_.reset();
  }
  void onEnd() override { ++ends_; }
  void onDrained() override {}
  void onError() override {
    ++errors_;
    reason_ = stream_->failure();
    stream_.reset();
  }
  void onUnanswered(uint16_t id, const std::string& reason, bool worth_another_try) override {
    unanswered_[id] = reason + (worth_another_try ? " (again)" : "");
    if (cancels_ != 0) stream_->cancel(static_cast<uint16_t>(cancels_ - id));
    if (destroys_) stream_.reset();
  }

  std::optional<Server> server_;
  net::StreamHandler* below_ = nullptr;  // what the Wire reports to; null: the Wire is gone
  std::unique_ptr<DohStream> stream_;
  Bytes sent_;  // to the server, which has not seen it
  size_t written_ = 0;
  bool reads_ = true;
  bool destroys_ = false;
  int cancels_ = 0;  // the sum of two IDs: with one of them the other is given up
  std::map<uint16_t, Bytes> answers_;
  std::map<uint16_t, std::string> unanswered_;
  int ends_ = 0;
  int errors_ = 0;
  std::string reason_;
};

TEST_F(DohStreamTest, AQuestionIsAPost) {
  open();
  ask(0x1234);  // before there is a connection
  EXPECT_EQ(written_, 0u);
  connect();
  ASSERT_EQ(server_->requests.size(), 1u);
  const Request& request = server_->requests.at(1);
  EXPECT_TRUE(request.whole);
  EXPECT_EQ(request.fields, (std::map<std::string, std::string>{{":method", "POST"},
                                                                {":scheme", "https"},
                                                                {":authority", "dns.example"},
                                                                {":path", "/dns-query"},
                                                                {"accept", "application/dns-message"},
                                                                {"content-type", "application/dns-message"},
                                                                {"content-length", "33"}}));
  EXPECT_EQ(request.body, question(0)) << "with the ID 0";
  server_->answer(1, reply());
  exchange();
  Bytes expected = reply();
  dns::store16(expected.data(), 0x1234);
  EXPECT_EQ(answers_, (std::map<uint16_t, Bytes>{{0x1234, expected}})) << "with its own ID";
}

// The example of RFC 8484 §4.1.1.
TEST_F(DohStreamTest, AQuestionIsAGet) {
  open(DohMethod::kGet);
  connect();
  ask(0x1234);
  exchange();
  const Request& request = server_->requests.at(1);
  EXPECT_TRUE(request.whole);
  EXPECT_EQ(request.fields.at(":method"), "GET");
  EXPECT_EQ(request.fields.at(":path"), "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB");
  EXPECT_TRUE(request.body.empty());
  server_->answer(1, reply());
  exchange();
  EXPECT_TRUE(answers_.contains(0x1234));
}

TEST_F(DohStreamTest, LettersAreThoseOfUrls) {
  open(DohMethod::kGet);
  connect();
  Bytes message(12 + 2);
  message[12] = 0xfb;
  message[13] = 0xff;
  for (size_t size : {14u, 13u, 12u}) {
    Bytes framed(2);
    dns::store16(framed.data(), static_cast<uint16_t>(size));
    framed.insert(framed.end(), message.begin(), message.begin() + static_cast<ptrdiff_t>(size));
    dns::store16(&framed[2], static_cast<uint16_t>(size));
    stream_->write(std::move(framed));
  }
  exchange();
  EXPECT_EQ(server_->requests.at(1).fields.at(":path"), "/dns-query?dns=AAAAAAAAAAAAAAAA-_8");
  EXPECT_EQ(server_->requests.at(3).fields.at(":path"), "/dns-query?dns=AAAAAAAAAAAAAAAA-w");
  EXPECT_EQ(server_->requests.at(5).fields.at(":path"), "/dns-query?dns=AAAAAAAAAAAAAAAA");
}

TEST_F(DohStreamTest, AnswersComeInAnyOrder) {
  open();
  connect();
  for (uint16_t id = 1; id <= 50; ++id) ask(id);
  exchange();
  for (int32_t stream = 99; stream > 0; stream -= 2) server_->answer(stream, reply(static_cast<uint8_t>(stream)));
  exchange();
  ASSERT_EQ(answers_.size(), 50u);
  for (const auto& [id, message] : answers_) EXPECT_EQ(message.back(), 2 * id - 1);
}

TEST_F(DohStreamTest, WhatIsNoAnswerIsSaidOfThatQuestionAlone) {
  open();
  connect();
  for (uint16_t id = 1; id <= 8; ++id) ask(id);
  exchange();
  const std::string type = "application/dns-message";
  server_->respond(1, reply(), {{":status", "500"}, {"content-type", type}});
  server_->respond(3, reply(), {{":status", "204"}, {"content-type", type}});
  server_->respond(5, reply(), {{":status", "200"}, {"content-type", "text/html"}});
  server_->respond(7, reply(), {{":status", "200"}});
  server_->respond(9, {}, {{":status", "200"}, {"content-type", type}});
  server_->respond(11, Bytes(11), {{":status", "200"}, {"content-type", type}});
  nghttp2_submit_rst_stream(server_->session(), 0, 13, NGHTTP2_INTERNAL_ERROR);
  server_->respond(15, reply(), {{":status", "200"}, {"content-type", "Application/DNS-Message ; a=b"}});
  exchange();
  EXPECT_EQ(unanswered_[1], "HTTP status 500");
  EXPECT_TRUE(unanswered_.contains(2));
  EXPECT_EQ(unanswered_[3], "HTTP: no application/dns-message");
  EXPECT_EQ(unanswered_[4], "HTTP: no application/dns-message");
  EXPECT_EQ(unanswered_[5], "HTTP: the body is no DNS message");
  EXPECT_EQ(unanswered_[6], "HTTP: the body is no DNS message");
  EXPECT_EQ(unanswered_[7], "HTTP/2: stream closed: INTERNAL_ERROR");
  EXPECT_EQ(unanswered_.size(), 7u);
  EXPECT_TRUE(answers_.contains(8));
  EXPECT_EQ(errors_, 0);
}

TEST_F(DohStreamTest, AnAnswerIsAsLongAsADnsMessageAtMost) {
  open();
  connect();
  ask(1);
  ask(2);
  exchange();
  server_->answer(1, Bytes(65535));
  server_->answer(3, Bytes(65536));
  exchange();
  EXPECT_EQ(answers_[1].size(), 65535u);
  EXPECT_EQ(unanswered_[2], "HTTP: the body is too long");
  ask(3);
  exchange();
  server_->answer(5, reply());
  exchange();
  EXPECT_TRUE(answers_.contains(3)) << "the connection goes on";
}

TEST_F(DohStreamTest, AnEndlessBodyIsCancelled) {
  open();
  connect();
  ask(1);
  exchange();
  server_->answer(1, Bytes(10000000));
  exchange();
  EXPECT_EQ(unanswered_[1], "HTTP: the body is too long");
  EXPECT_EQ(server_->requests.at(1).cancelled, NGHTTP2_CANCEL);
}

TEST_F(DohStreamTest, AnEndlessHeaderIsCancelled) {
  open();
  connect();
  ask(1);
  exchange();
  Fields interim{{":status", "103"}};
  for (int i = 0; i < 20; ++i) interim.emplace_back("link" + std::to_string(i), std::string(100, 'x'));
  const auto list = Server::fieldsOf(interim);
  for (int i = 0; i < 20; ++i)
    nghttp2_submit_headers(server_->session(), 0, 1, nullptr, list.data(), list.size(), nullptr);
  exchange();
  EXPECT_EQ(unanswered_[1], "HTTP: the header is too long");
  EXPECT_NE(server_->requests.at(1).cancelled, 0u);
  EXPECT_EQ(errors_, 0);
}

TEST_F(DohStreamTest, InterimResponsesAreNone) {
  open();
  connect();
  ask(1);
  exchange();
  const Fields interim{{":status", "103"}, {"age", "50"}};
  const auto list = Server::fieldsOf(interim);
  nghttp2_submit_headers(server_->session(), 0, 1, nullptr, list.data(), list.size(), nullptr);
  server_->answer(1, reply());
  exchange();
  ASSERT_TRUE(answers_.contains(1));
  Bytes expected = reply();
  dns::store16(expected.data(), 1);
  EXPECT_EQ(answers_[1], expected);
}

TEST_F(DohStreamTest, TheAgeOfAResponseIsTakenFromItsTtls) {
  open();
  connect();
  const std::map<std::string, uint32_t> left{{"0", 60}, {"25", 35}, {"60", 0}, {"4000000000", 0}, {"x", 60}};
  uint16_t id = 0;
  for (const auto& [age, ttl] : left) {
    ask(++id);
    exchange();
    server_->answer(2 * id - 1, reply(), {{"age", age}});
    exchange();
    Bytes expected =
        UpstreamMessage("www.example.com.", 1, 0x8180, id).a("www.example.com.", ttl, {192, 0, 2, 1}).bytes;
    EXPECT_EQ(answers_[id], expected) << age;
  }
}

TEST_F(DohStreamTest, AgeAndNonsenseGoTogether) {
  open();
  connect();
  ask(1);
  exchange();
  Bytes message(14, 0xff);
  server_->answer(1, message, {{"age", "1"}});
  exchange();
  EXPECT_EQ(answers_[1].size(), 14u) << "whoever reads it finds out";
}

TEST_F(DohStreamTest, ARefusedStreamIsWorthAnotherTry) {
  open();
  connect();
  ask(1);
  exchange();
  nghttp2_submit_rst_stream(server_->session(), 0, 1, NGHTTP2_REFUSED_STREAM);
  exchange();
  EXPECT_EQ(unanswered_[1], "HTTP/2: stream closed: REFUSED_STREAM (again)");
}

TEST_F(DohStreamTest, AfterGoawayWhatWasTakenIsAnsweredAndTheRestIsNot) {
  open();
  connect();
  ask(1);
  ask(2);
  exchange();
  EXPECT_TRUE(stream_->takesMore());
  nghttp2_submit_goaway(server_->session(), 0, 1, NGHTTP2_NO_ERROR, nullptr, 0);
  exchange();
  EXPECT_FALSE(stream_->takesMore());
  EXPECT_EQ(unanswered_[2], "HTTP/2: stream closed: REFUSED_STREAM (again)");
  EXPECT_EQ(errors_, 0);
  server_->answer(1, reply());
  exchange();
  EXPECT_TRUE(answers_.contains(1));
  EXPECT_EQ(errors_, 1) << "nothing is left to wait for";
}

TEST_F(DohStreamTest, TheServerSaysHowManyItTakesAtATime) {
  open(DohMethod::kPost, {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 2}});
  for (uint16_t id = 1; id <= 3; ++id) ask(id);  // nothing has been said yet
  EXPECT_TRUE(stream_->takesMore());
  below_->onConnected();
  exchange();
  EXPECT_FALSE(stream_->takesMore());
  EXPECT_LE(server_->requests.size(), 3u);
  server_->answer(1, reply());
  server_->answer(3, reply());
  exchange();
  EXPECT_TRUE(stream_->takesMore());
  for (const auto& [stream, request] : server_->requests) {
    if (request.cancelled == 0 && stream == 5) server_->answer(stream, reply());
  }
  exchange();
  EXPECT_EQ(answers_.size() + unanswered_.size(), 3u) << "the third waits for its turn, or is refused";
}

TEST_F(DohStreamTest, NoMoreThanAHundredAtATime) {
  open(DohMethod::kPost, {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 100000}});
  connect();
  for (uint16_t id = 1; id <= 99; ++id) ask(id);
  EXPECT_TRUE(stream_->takesMore());
  ask(100);
  EXPECT_FALSE(stream_->takesMore());
}

TEST_F(DohStreamTest, WhatNobodyWaitsForIsCancelled) {
  open();
  connect();
  for (uint16_t id = 1; id <= 100; ++id) ask(id);
  exchange();
  for (uint16_t id = 1; id <= 100; ++id) stream_->cancel(id);
  stream_->cancel(1);
  stream_->cancel(4711);
  exchange();
  for (const auto& [stream, request] : server_->requests) EXPECT_EQ(request.cancelled, NGHTTP2_CANCEL) << stream;
  EXPECT_TRUE(stream_->takesMore());
  ask(7);  // the ID is free
  exchange();
  server_->answer(201, reply());
  exchange();
  EXPECT_TRUE(answers_.contains(7));
  EXPECT_TRUE(unanswered_.empty());
}

TEST_F(DohStreamTest, ARequestThatHasNotLeftIsCancelledToo) {
  open();
  ask(1);
  stream_->cancel(1);
  ask(2);
  connect();
  ASSERT_TRUE(server_->requests.contains(3));
  server_->answer(3, reply());
  exchange();
  EXPECT_TRUE(answers_.contains(2));
  EXPECT_TRUE(unanswered_.empty());
}

TEST_F(DohStreamTest, WhatIsCancelledIsNotReported) {
  open();
  connect();
  ask(1);
  ask(2);
  exchange();
  nghttp2_submit_goaway(server_->session(), 0, 0, NGHTTP2_NO_ERROR, nullptr, 0);  // both at once
  cancels_ = 1 + 2;
  exchange();
  EXPECT_EQ(unanswered_.size(), 1u);
}

TEST_F(DohStreamTest, AServerThatSpeaksSomethingElseHasFailed) {
  for (const std::string text : {"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", ""}) {
    errors_ = 0;
    open();
    ask(1);
    below_->onConnected();
    Bytes bytes(text.begin(), text.end());
    bytes.resize(100);
    deliver(bytes);
    EXPECT_EQ(errors_, 1);
    EXPECT_TRUE(reason_.starts_with("HTTP/2: ")) << reason_;
  }
}

TEST_F(DohStreamTest, AServerMayNotPush) {
  open();
  connect();
  ask(1);
  exchange();
  // PUSH_PROMISE of stream 2 on stream 1, with an empty header.
  deliver({0, 0, 4, 5, 4, 0, 0, 0, 1, 0, 0, 0, 2});
  EXPECT_EQ(errors_, 1);
}

TEST_F(DohStreamTest, TheEndsOfTheConnectionAreReported) {
  open();
  connect();
  below_->onEnd();
  EXPECT_EQ(ends_, 1);
  below_->onError();
  EXPECT_EQ(errors_, 1);
}

TEST_F(DohStreamTest, WhyTheConnectionFailedIsItsOwnWord) {
  open();
  below_->onError();
  EXPECT_EQ(reason_, "the wire is cut");
}

// RFC 9113 §10.5: what is to be acknowledged costs memory if the peer does not read.
TEST_F(DohStreamTest, AServerThatAsksAndDoesNotReadIsLeft) {
  open();
  connect();
  reads_ = false;
  ask(1);  // what the kernel takes no more of
  const size_t before = written_;
  Bytes pings;
  for (int i = 0; i < 100000; ++i) {
    const Bytes ping{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    pings.insert(pings.end(), ping.begin(), ping.end());
  }
  deliver(pings);
  EXPECT_EQ(errors_, 1);
  EXPECT_LT(written_ - before, 100000u);
}

TEST_F(DohStreamTest, WhatWaitsLeavesWhenTheServerReadsAgain) {
  open();
  connect();
  reads_ = false;
  ask(1);  // is taken, but the kernel's buffer is full
  const size_t before = written_;
  ask(2);
  EXPECT_EQ(written_, before);
  reads_ = true;
  below_->onDrained();
  EXPECT_GT(written_, before);
}

TEST_F(DohStreamTest, ItMayBeDestroyedWhenItReports) {
  for (const bool with_answer : {true, false}) {
    answers_.clear();
    unanswered_.clear();
    open();
    connect();
    ask(1);
    ask(2);
    exchange();
    destroys_ = true;
    for (const int32_t stream : {1, 3}) {
      if (with_answer) server_->answer(stream, reply());
      if (!with_answer) server_->respond(stream, {}, {{":status", "500"}});
    }
    deliver(server_->toSend());
    EXPECT_EQ(stream_, nullptr);
    EXPECT_EQ(answers_.size() + unanswered_.size(), 1u) << "nothing is reported after that";
    destroys_ = false;
  }
}

}  // namespace
}  // namespace idetcd::resolver
