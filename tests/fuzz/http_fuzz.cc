// What a client sends to the endpoints over HTTP: requests are read alike in whatever pieces they come, up to what is
// refused. The input is a number of pieces, the size of each, and the stream.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/pieces.h"
#include "http/message.h"

namespace {

using namespace idetcd;
using http::RequestReader;
using Progress = RequestReader::Progress;

constexpr std::array kRefusals{400, 405, 413, 431, 505};

// What was made of a stream.
struct Reading {
  std::vector<http::Request> requests;
  int refused = 0;  // the status; 0: not refused
};

auto fieldsOf(const http::Request& request) {
  return std::tie(request.path, request.query, request.accept, request.is_head, request.keeps_alive);
}

// `head`: the bytes of the request.
void checkRequest(const http::Request& request, std::string_view head) {
  const std::string_view method = request.is_head ? "HEAD " : "GET ";
  FUZZ_CHECK(head.size() <= RequestReader::kMaxHead && head.starts_with(method) && head.ends_with("\r\n\r\n"));
  std::string_view target = head.substr(method.size());
  target = target.substr(0, target.find(' '));
  const bool is_bare = target.find("://") != target.npos && !target.starts_with('/') && request.path == "/";
  const std::string tail = request.path + (request.query.empty() ? "" : "?" + request.query);
  FUZZ_CHECK(is_bare || target.ends_with(tail) || target.ends_with(tail + "?"));
  FUZZ_CHECK(request.path.find('?') == request.path.npos);
  FUZZ_CHECK(std::ranges::none_of(request.accept, [](char c) { return c == '\r' || c == '\n'; }));
}

class Client {
 public:
  // The next bytes of the stream.
  void send(std::string_view bytes) {
    waiting_ += bytes;
    while (!waiting_.empty() && reading_.refused == 0 && step()) {
    }
  }
  const Reading& reading() const { return reading_; }

 private:
  // False: it takes more bytes to go on.
  bool step() {
    const Progress progress = reader_.read(waiting_);
    FUZZ_CHECK(reader_.taken() <= waiting_.size());
    head_ += waiting_.substr(0, reader_.taken());
    waiting_.erase(0, reader_.taken());
    switch (progress) {
      case Progress::kIncomplete:
        FUZZ_CHECK(head_.size() + waiting_.size() <= RequestReader::kMaxHead);
        return false;
      case Progress::kComplete:
        checkRequest(reader_.request(), head_);
        head_.clear();
        reading_.requests.push_back(reader_.request());
        return true;
      case Progress::kRefused:
        FUZZ_CHECK(std::ranges::find(kRefusals, reader_.status()) != kRefusals.end());
        reading_.refused = reader_.status();
        return false;
    }
    return false;
  }

  RequestReader reader_;
  std::string waiting_;  // that the reader has not taken
  std::string head_;     // that it has taken of the request that is being read
  Reading reading_;
};

// A head that is too large and wrong beside is refused for either. One that is wrong may be refused before it is whole, or
// be waited for: the library looks for the end of a head behind what it has seen.
bool agree(int one, int other) { return one == other || one == 0 || other == 0 || one == 431 || other == 431; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Pieces pieces({data, size});
  const auto rest = pieces.rest();
  const std::string_view stream(reinterpret_cast<const char*>(rest.data()), rest.size());
  Client whole;
  whole.send(stream);
  Client cut;
  for (size_t at = 0; at < stream.size();) {
    const size_t length = pieces.next(stream.size() - at);
    cut.send(stream.substr(at, length));
    at += length;
  }
  FUZZ_CHECK(agree(whole.reading().refused, cut.reading().refused));
  FUZZ_CHECK(std::ranges::equal(whole.reading().requests, cut.reading().requests, {}, fieldsOf, fieldsOf));
  return 0;
}
