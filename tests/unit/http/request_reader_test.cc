// Requests in whole and in pieces: which are accepted, and which are refused and why.
#include "http/message.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::http {
namespace {

using Progress = RequestReader::Progress;

// The status with which `bytes` are refused; 0: they are a request.
int refusalOf(const std::string& bytes) {
  RequestReader reader;
  const Progress progress = reader.read(bytes);
  EXPECT_NE(progress, Progress::kIncomplete) << bytes;
  return progress == Progress::kRefused ? reader.status() : 0;
}

Request requestOf(const std::string& bytes) {
  RequestReader reader;
  EXPECT_EQ(reader.read(bytes), Progress::kComplete) << bytes;
  EXPECT_EQ(reader.taken(), bytes.size());
  return reader.request();
}

TEST(RequestReader, SaysWhatIsAsked) {
  const Request request = requestOf("GET /metrics?name=x&y HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n");
  EXPECT_EQ(request.path, "/metrics");
  EXPECT_EQ(request.query, "name=x&y");
  EXPECT_EQ(request.accept, "text/plain");
  EXPECT_FALSE(request.is_head);
  EXPECT_TRUE(request.keeps_alive);
  EXPECT_TRUE(requestOf("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").is_head);
}

TEST(RequestReader, KnowsWhenTheConnectionEnds) {
  EXPECT_FALSE(requestOf("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").keeps_alive);
  EXPECT_FALSE(requestOf("GET / HTTP/1.0\r\n\r\n").keeps_alive);
  EXPECT_TRUE(requestOf("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keeps_alive);
}

// RFC 9112, section 3.2.2.
TEST(RequestReader, TakesAbsoluteTargets) {
  EXPECT_EQ(requestOf("GET http://a:8080/health HTTP/1.1\r\nHost: a\r\n\r\n").path, "/health");
  EXPECT_EQ(requestOf("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n").path, "/");
  EXPECT_EQ(requestOf("GET /x?u=http://b/c HTTP/1.1\r\nHost: a\r\n\r\n").path, "/x");
}

TEST(RequestReader, TakesPostOnlyWhereItIsAllowed) {
  const std::string kPost = "POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
  EXPECT_EQ(refusalOf(kPost), 405);
  RequestReader reader(RequestReader::Post::kAllowed);
  ASSERT_EQ(reader.read(kPost), Progress::kComplete);
  EXPECT_TRUE(reader.request().is_post);
  EXPECT_EQ(reader.request().path, "/x");
  ASSERT_EQ(reader.read("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Progress::kComplete);
  EXPECT_FALSE(reader.request().is_post);
  ASSERT_EQ(reader.read("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"), Progress::kRefused);
  EXPECT_EQ(reader.status(), 413);
  EXPECT_EQ(RequestReader(RequestReader::Post::kAllowed).read("PUT / HTTP/1.1\r\nHost: a\r\n\r\n"), Progress::kRefused);
}

TEST(RequestReader, RefusesWhatItDoesNotDo) {
  EXPECT_EQ(refusalOf("POST / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(refusalOf("BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"), 413);
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"), 0);
  EXPECT_EQ(refusalOf("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
}

TEST(RequestReader, RefusesWhatIsNoRequest) {
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400) << "two";
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"), 400);
  for (const std::string coding : {"chunked, identity", "xchunked", "gzip", "identity", ""}) {
    EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " + coding + "\r\n\r\n"), 400)
        << coding << ": the body would be the next request";
  }
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nno field\r\n\r\n"), 400);
  EXPECT_EQ(refusalOf("\x16\x03\x01\x02 a TLS client\r\n\r\n"), 400);
}

TEST(RequestReader, RefusesHeadsThatAreTooLong) {
  const std::string long_text(RequestReader::kMaxHead, 'a');
  EXPECT_EQ(refusalOf("GET /" + long_text), 431);
  EXPECT_EQ(refusalOf("GET / HTTP/1.1\r\nHost: a\r\nX: " + long_text), 431);
  const std::string half(RequestReader::kMaxHead * 2 / 3, 'a');
  EXPECT_EQ(refusalOf("GET /" + half + " HTTP/1.1\r\nHost: a\r\nX: " + half + "\r\n\r\n"), 431) << "line and fields";
  EXPECT_EQ(requestOf("GET /" + half + " HTTP/1.1\r\nHost: a\r\n\r\n").path.size(), half.size() + 1);
}

// Cut anywhere, and even into single bytes, two requests in a row are the same two requests.
TEST(RequestReader, PiecesDoNotMatter) {
  const std::string bytes =
      "GET /one HTTP/1.1\r\nHost: a\r\nAccept: x\r\n\r\nHEAD /two?q HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    RequestReader reader;
    std::string input;
    std::vector<Request> requests;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      input += bytes.substr(at, piece);
      Progress progress = Progress::kComplete;
      while (progress == Progress::kComplete && !input.empty()) {
        progress = reader.read(input);
        input.erase(0, reader.taken());
        ASSERT_NE(progress, Progress::kRefused) << piece;
        if (progress == Progress::kComplete) requests.push_back(reader.request());
      }
    }
    ASSERT_EQ(requests.size(), 2U) << piece;
    EXPECT_EQ(requests[0].path, "/one");
    EXPECT_EQ(requests[0].accept, "x");
    EXPECT_EQ(requests[1].path, "/two");
    EXPECT_EQ(requests[1].query, "q");
    EXPECT_TRUE(requests[1].is_head);
    EXPECT_FALSE(requests[1].keeps_alive);
  }
}

}  // namespace
}  // namespace idetcd::http
