// With an HTTP/2 client of nghttp2's at the other end, and no network between them.
#include "server/https_stream.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dns/types.h"
#include "dns/wire.h"
#include "net/http2.h"
#include "unit/dns/message.h"

namespace idetcd::server {
namespace {

using dns::test::be16;

// What is under the stream: it keeps what is written.
class FakeWire final : public net::BoundedStream {
 public:
  void start(net::StreamHandler& to) override {
    handler = &to;
    handler->onConnected();
  }
  bool write(std::vector<uint8_t>&& bytes) override {
    written.insert(written.end(), bytes.begin(), bytes.end());
    return takes;
  }
  std::string failure() const override { return "closed"; }
  void pauseReading() override { reads = false; }
  void resumeReading() override { reads = true; }
  bool isDrained() const override { return takes; }
  size_t queued() const override { return 0; }
  uint64_t taken() const override { return written.size(); }
  void resetAtEnd() override {}
  const SocketAddress& remote() const override { return address; }
  const SocketAddress& local() const override { return address; }

  net::StreamHandler* handler = nullptr;
  std::vector<uint8_t> written;
  bool takes = true;
  bool reads = true;
  SocketAddress address{};
};

// The stream's owner: questions as they come.
struct QuestionOwner final : net::StreamHandler {
  void onConnected() override { is_connected = true; }
  void onData(std::span<const uint8_t> bytes) override {
    while (!bytes.empty()) {
      const size_t size = dns::load16(bytes.data());
      const auto message = bytes.subspan(dns::kLengthPrefix, size);
      questions.emplace_back(message.begin(), message.end());
      bytes = bytes.subspan(dns::kLengthPrefix + size);
    }
  }
  void onEnd() override { ++ended; }
  void onDrained() override { ++drained; }
  void onError() override { is_over = true; }

  std::vector<std::vector<uint8_t>> questions;
  int drained = 0;
  int ended = 0;
  bool is_connected = false;
  bool is_over = false;
};

struct HttpResponse {
  std::map<std::string, std::string> fields;
  std::string body;
  bool is_whole = false;
  std::optional<uint32_t> reset;
};

class HttpsStreamTest : public testing::Test {
 protected:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  HttpsStreamTest() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                      const uint8_t* value, size_t value_size, uint8_t, void* self) {
          of(self).responses[frame->hd.stream_id].fields[std::string(net::viewOf(name, name_size))] =
              net::viewOf(value, value_size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t size, void* self) {
          of(self).responses[stream].body += net::viewOf(data, size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 && frame->hd.type <= NGHTTP2_HEADERS)
            of(self).responses[frame->hd.stream_id].is_whole = true;
          if (frame->hd.type == NGHTTP2_RST_STREAM)
            of(self).responses[frame->hd.stream_id].reset = frame->rst_stream.error_code;
          return 0;
        });
    nghttp2_option* options = nullptr;
    nghttp2_option_new(&options);
    nghttp2_option_set_no_auto_window_update(options, 1);  // so that each test says what the client takes
    nghttp2_session* made = nullptr;
    nghttp2_session_client_new2(&made, callbacks, this, options);
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(callbacks);
    client.reset(made);
    nghttp2_submit_settings(made, NGHTTP2_FLAG_NONE, nullptr, 0);
    auto under = std::make_unique<FakeWire>();
    wire = under.get();
    stream = std::make_unique<HttpsStream>(std::move(under));
    stream->start(owner);
    exchange();
  }
  static HttpsStreamTest& of(void* self) { return *static_cast<HttpsStreamTest*>(self); }

  // All that both sides have to say.
  void exchange() {
    for (bool moved = true; moved && !owner.is_over;) {
      moved = false;
      const uint8_t* data = nullptr;
      for (ssize_t size; (size = nghttp2_session_mem_send(client.get(), &data)) > 0; moved = true)
        wire->handler->onData({data, static_cast<size_t>(size)});
      const std::vector<uint8_t> bytes = std::exchange(wire->written, {});
      moved = moved || !bytes.empty();
      nghttp2_session_mem_recv(client.get(), bytes.data(), bytes.size());
    }
  }
  int32_t request(const Fields& fields, std::string body = {}, bool exchanges = true) {
    std::vector<nghttp2_nv> headers;
    for (const auto& [name, value] : fields) headers.push_back(net::headerField(name, value));
    bodies.push_back(std::make_unique<std::string>(std::move(body)));
    const nghttp2_data_provider provider{.source = {.ptr = bodies.back().get()},
                                         .read_callback = [](nghttp2_session*, int32_t, uint8_t* to, size_t room,
                                                             uint32_t* flags, nghttp2_data_source* source, void*) {
                                           auto& left = *static_cast<std::string*>(source->ptr);
                                           const size_t size = std::min(room, left.size());
                                           std::memcpy(to, left.data(), size);
                                           left.erase(0, size);
                                           if (left.empty()) *flags |= NGHTTP2_DATA_FLAG_EOF;
                                           return static_cast<ssize_t>(size);
                                         }};
    const int32_t id = nghttp2_submit_request(client.get(), nullptr, headers.data(), headers.size(),
                                              bodies.back()->empty() ? nullptr : &provider, nullptr);
    if (exchanges) exchange();
    return id;
  }
  static Fields post(const std::string& type = "application/dns-message", const std::string& path = "/dns-query") {
    return {{":method", "POST"}, {":scheme", "https"}, {":authority", "dns"}, {":path", path}, {"content-type", type}};
  }
  static Fields get(const std::string& path) {
    return {{":method", "GET"}, {":scheme", "https"}, {":authority", "dns"}, {":path", path}};
  }
  static std::string question(uint16_t id, const std::string& rest = std::string(20, 'q')) {
    return be16(id) + be16(0x0100) + be16(1) + be16(0) + be16(0) + be16(0) + rest;
  }
  // The owner's answer to the question that it has as `index`: `size` bytes.
  bool answer(size_t index, size_t size = 100, uint16_t flags = 0x8180) {
    std::vector<uint8_t> message(dns::kLengthPrefix + size);
    dns::store16(message.data(), static_cast<uint16_t>(size));
    dns::store16(&message[2], dns::load16(owner.questions.at(index).data()));
    dns::store16(&message[4], flags);
    return stream->write(std::move(message));
  }
  std::string status(int32_t id) { return responses[id].fields[":status"]; }

  QuestionOwner owner;
  FakeWire* wire = nullptr;
  std::unique_ptr<HttpsStream> stream;
  net::Http2Session client;
  std::map<int32_t, HttpResponse> responses;
  std::vector<std::unique_ptr<std::string>> bodies;
};

TEST_F(HttpsStreamTest, QuestionsComeByPostAndGet) {
  EXPECT_TRUE(owner.is_connected);
  const int32_t posted = request(post("Application/DNS-Message ; x=y"), question(0x1234));
  // RFC 8484 §4.1.1's example of www.example.com, and a parameter before it
  const int32_t got = request(get("/dns-query?a=b&dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB"));
  ASSERT_EQ(owner.questions.size(), 2u);
  const auto textOf = [](const std::vector<uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); };
  EXPECT_EQ(textOf(owner.questions[0]).substr(2), question(0).substr(2));
  EXPECT_EQ(textOf(owner.questions[1]).substr(12), std::string("\3www\7example\3com\0\0\1\0\1", 21));
  EXPECT_NE(textOf(owner.questions[0]).substr(0, 2), textOf(owner.questions[1]).substr(0, 2)) << "IDs of its own";
  EXPECT_TRUE(answer(1));
  EXPECT_TRUE(answer(0));
  exchange();
  EXPECT_EQ(responses[posted].body.substr(0, 2), be16(0x1234)) << "the client's";
  EXPECT_EQ(responses[got].body.substr(0, 2), be16(0));
  for (const int32_t id : {posted, got}) {
    EXPECT_TRUE(responses[id].is_whole);
    EXPECT_EQ(status(id), "200");
    EXPECT_EQ(responses[id].body.size(), 100u);
    EXPECT_EQ(responses[id].fields["content-type"], "application/dns-message");
    EXPECT_EQ(responses[id].fields["content-length"], "100");
  }
  EXPECT_EQ(stream->held(), 0u);
  EXPECT_EQ(stream->queued(), 0u);
}

TEST_F(HttpsStreamTest, WhatIsNoQuestionHasItsStatus) {
  const std::string response = be16(1) + be16(0x8000) + std::string(20, 'r');
  const auto with = [](Fields fields, const std::string& name, const std::string& value) {
    fields.emplace_back(name, value);
    return fields;
  };
  const auto replaced = [](Fields fields, const std::string& name, const std::string& value) {
    for (auto& field : fields) {
      if (field.first == name) field.second = value;
    }
    return fields;
  };
  const std::tuple<Fields, std::string, std::string> cases[] = {
      {get("/"), "", "404"},
      {get("/dns-query/"), "", "404"},
      {get("/dns-query"), "", "400"},
      {get("/dns-query?dns="), "", "400"},
      {get("/dns-query?dns=AAAB&dns=AAAB"), "", "400"},
      {get("/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB=="), "", "400"},
      {get("/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB+"), "", "400"},
      {get("/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQABA"), "", "400"},
      {replaced(get("/dns-query"), ":method", "HEAD"), "", "405"},
      {replaced(post(), ":method", "PUT"), question(1), "405"},
      {post("text/plain"), question(1), "415"},
      {post("application/dns-message2"), question(1), "415"},
      {post(), "short", "400"},
      {post(), response, "400"},
      {post(), "", "400"},
      {post(), question(1, std::string(70'000, 'x')), "413"},
      {with(post(), "x", std::string(9000, 'x')), question(1), "431"},
  };
  for (const auto& [fields, body, expected] : cases) {
    const int32_t id = request(fields, body);
    EXPECT_EQ(status(id), expected) << fields[3].second << " " << body.size();
    EXPECT_TRUE(responses[id].is_whole);
    EXPECT_EQ(stream->held(), 0u);
    nghttp2_submit_rst_stream(client.get(), NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    exchange();
  }
  EXPECT_TRUE(owner.questions.empty());
  EXPECT_FALSE(owner.is_over);
  request(post(), question(1));
  EXPECT_EQ(owner.questions.size(), 1u) << "the connection goes on";
}

TEST_F(HttpsStreamTest, WhatHasComeOfAQuestionIsKnown) {
  request(post(), question(1, std::string(40'000, 'x')), false);
  const uint8_t* data = nullptr;
  while (stream->held() <= dns::kLengthPrefix) {
    const ssize_t size = nghttp2_session_mem_send(client.get(), &data);
    ASSERT_GT(size, 0);
    wire->handler->onData({data, static_cast<size_t>(size)});
  }
  EXPECT_LT(stream->held(), 40'000u);
  EXPECT_TRUE(owner.questions.empty());
  exchange();
  ASSERT_EQ(owner.questions.size(), 1u);
  EXPECT_EQ(owner.questions[0].size(), 40'012u);
  EXPECT_EQ(stream->held(), 0u);
}

// The window of HTTP/2 (RFC 9113 §5.2) has 65,535 bytes, until the client says that it has read some.
TEST_F(HttpsStreamTest, AClientWithoutRoomIsReadFromUntilItHasSome) {
  const int32_t one = request(post(), question(1));
  const int32_t two = request(post(), question(2));
  EXPECT_TRUE(answer(0, 60'000));
  EXPECT_FALSE(answer(1, 60'000));
  exchange();
  EXPECT_TRUE(responses[one].is_whole);
  EXPECT_EQ(responses[two].body.size(), 5'535u);
  EXPECT_EQ(stream->queued(), 54'465u);
  EXPECT_TRUE(stream->isDrained()) << "the kernel would take more";
  stream->pauseReading();
  EXPECT_TRUE(wire->reads);
  nghttp2_session_consume(client.get(), one, 60'000);
  nghttp2_session_consume(client.get(), two, 5'535);
  exchange();
  EXPECT_TRUE(responses[two].is_whole);
  EXPECT_EQ(stream->queued(), 0u);
  EXPECT_GT(owner.drained, 0);
  EXPECT_FALSE(wire->reads);
  stream->resumeReading();
  EXPECT_TRUE(wire->reads);
}

// So that a client without room for an answer cannot keep it here by what needs none (RFC 9113 §6.7).
TEST_F(HttpsStreamTest, RepliesToPingsAreNotTakenForAnswers) {
  const nghttp2_settings_entry no_window{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
  nghttp2_submit_settings(client.get(), NGHTTP2_FLAG_NONE, &no_window, 1);
  const int32_t id = request(post(), question(1));
  EXPECT_FALSE(answer(0));
  exchange();
  const uint64_t taken = stream->taken();
  for (int i = 0; i < 3; ++i) {
    nghttp2_submit_ping(client.get(), NGHTTP2_FLAG_NONE, nullptr);
    exchange();
    EXPECT_EQ(stream->taken(), taken);
  }
  EXPECT_EQ(stream->queued(), 100u);
  nghttp2_submit_window_update(client.get(), NGHTTP2_FLAG_NONE, id, 100);
  exchange();
  EXPECT_TRUE(responses[id].is_whole);
  EXPECT_EQ(stream->taken(), taken + 100);
}

// RFC 9113 §6.8: what was begun before is finished.
TEST_F(HttpsStreamTest, BehindAGoawayAnAnswerIsStillGiven) {
  const int32_t id = request(get("/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB"), {}, false);
  std::vector<uint8_t> record;
  const auto add = [&] {
    const uint8_t* data = nullptr;
    for (ssize_t size; (size = nghttp2_session_mem_send(client.get(), &data)) > 0;)
      record.insert(record.end(), data, data + size);
  };
  add();
  nghttp2_submit_goaway(client.get(), NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, nullptr, 0);
  add();
  wire->handler->onData(record);
  EXPECT_EQ(owner.ended, 1) << "nothing more comes, but an answer is waited for";
  EXPECT_FALSE(owner.is_over);
  wire->takes = false;
  answer(0);
  wire->handler->onDrained();
  EXPECT_FALSE(owner.is_over) << "the kernel has not taken it";
  wire->takes = true;
  wire->handler->onDrained();
  EXPECT_TRUE(owner.is_over);
  const std::vector<uint8_t> bytes = std::exchange(wire->written, {});
  nghttp2_session_mem_recv(client.get(), bytes.data(), bytes.size());
  EXPECT_TRUE(responses[id].is_whole);
}

TEST_F(HttpsStreamTest, WhatTheKernelDoesNotTakeStaysHere) {
  request(post(), question(1));
  wire->takes = false;
  EXPECT_FALSE(answer(0, 60'000));
  exchange();
  EXPECT_GT(stream->queued(), 40'000u);
  EXPECT_EQ(owner.drained, 0);
  wire->takes = true;
  wire->handler->onDrained();
  EXPECT_EQ(stream->queued(), 0u);
  EXPECT_EQ(owner.drained, 1);
}

TEST_F(HttpsStreamTest, RequestsThatTheClientResetsAreBounded) {
  constexpr size_t kMost = 2 * HttpsStream::kMaxRequests;
  for (size_t i = 0; i < kMost + 20; ++i) {
    const int32_t id = request(post(), question(static_cast<uint16_t>(i)));
    nghttp2_submit_rst_stream(client.get(), NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    exchange();
  }
  EXPECT_EQ(owner.questions.size(), kMost);
  EXPECT_FALSE(owner.is_over);
  const size_t asked = owner.questions.size();
  for (size_t i = 0; i < asked; ++i) answer(i);
  exchange();
  const int32_t id = request(post(), question(7));
  ASSERT_EQ(owner.questions.size(), asked + 1);
  answer(asked);
  exchange();
  EXPECT_EQ(responses[id].body.substr(0, 2), be16(7)) << "no answer to another question came there";
}

TEST_F(HttpsStreamTest, WhatHasNoAnswerIsReset) {
  const int32_t dropped = request(post(), question(1));
  const int32_t other = request(post(), question(2));
  stream->cancel(dns::load16(owner.questions[0].data()));
  exchange();
  EXPECT_EQ(responses[dropped].reset, NGHTTP2_CANCEL);
  answer(1);
  exchange();
  EXPECT_EQ(status(other), "200");
}

// RFC 8484 §5.1
TEST_F(HttpsStreamTest, ACacheMayKeepWhatTheRecordsAllow) {
  using dns::test::record;
  const std::string owner_name("\0", 1);
  const std::string soa = std::string("\0\0", 2) + std::string(16, 's') + std::string("\0\0\0\x1e", 4);  // 30 s
  const struct {
    uint16_t flags;
    std::string answers;
    uint16_t answer_count;
    std::string authorities;
    uint16_t authority_count;
    const char* max_age;
  } cases[] = {
      {0x8180, record(owner_name, 1, 1, 300, "1234") + record(owner_name, 1, 1, 60, "1234"), 2, "", 0, "max-age=60"},
      {0x8180, record(owner_name, 1, 1, 0, "1234"), 1, "", 0, "max-age=0"},
      {0x8183, "", 0, record(owner_name, 6, 1, 600, soa), 1, "max-age=30"},
      {0x8183, "", 0, record(owner_name, 6, 1, 20, soa), 1, "max-age=20"},
      {0x8182, "", 0, "", 0, "max-age=0"},
      {0x8180, record(owner_name, 1, 1, 300, "1234"), 1, record(owner_name, 2, 1, 5, owner_name), 1, "max-age=300"},
  };
  for (const auto& each : cases) {
    const int32_t id = request(post(), question(1));
    const uint16_t own_id = dns::load16(owner.questions.back().data());
    const std::string message = be16(own_id) + be16(each.flags) + be16(0) + be16(each.answer_count) +
                                be16(each.authority_count) + be16(0) + each.answers + each.authorities;
    const std::string framed = be16(static_cast<uint16_t>(message.size())) + message;
    stream->write({framed.begin(), framed.end()});
    exchange();
    EXPECT_EQ(responses[id].fields["cache-control"], each.max_age);
  }
}

TEST(HttpsStream, AnotherProtocolIsRefused) {
  auto under = std::make_unique<FakeWire>();
  FakeWire* const wire = under.get();
  QuestionOwner owner;
  HttpsStream stream(std::move(under));
  stream.start(owner);
  const std::string_view text = "GET /dns-query HTTP/1.1\r\nHost: dns\r\n\r\n";
  wire->handler->onData({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  EXPECT_TRUE(owner.is_over);
}

}  // namespace
}  // namespace idetcd::server
