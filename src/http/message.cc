#include "http/message.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

namespace idetcd::http {

namespace {

namespace beast = boost::beast;

int statusOf(const boost::system::error_code& error) {
  if (error == beast::http::error::header_limit) return 431;
  if (error == beast::http::error::bad_version) return 505;
  return 400;
}

// The target's path and query. An absolute target's scheme and authority say nothing to us (RFC 9112, section 3.2.2).
void splitTarget(std::string_view target, Request& request) {
  if (const size_t scheme = target.find("://"); !target.starts_with('/') && scheme != target.npos) {
    const size_t path = target.find('/', scheme + 3);
    target = path != target.npos ? target.substr(path) : "/";
  }
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  request.query = mark != target.npos ? target.substr(mark + 1) : std::string_view{};
}

}  // namespace

struct RequestReader::Parser : beast::http::request_parser<beast::http::empty_body> {
  Parser() { header_limit(kMaxHead); }
};

RequestReader::RequestReader(Post post) : post_(post) {}
RequestReader::~RequestReader() = default;

RequestReader::Progress RequestReader::read(std::string_view bytes) {
  if (!parser_) {
    parser_ = std::make_unique<Parser>();
    head_bytes_ = 0;
  }
  boost::system::error_code error;
  taken_ = parser_->put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  head_bytes_ += taken_;
  const bool incomplete = error == beast::http::error::need_more;
  if (error && !incomplete) return refuse(statusOf(error));
  if (head_bytes_ + (incomplete ? bytes.size() - taken_ : 0) > kMaxHead) return refuse(431);
  return parser_->is_header_done() ? finish() : Progress::kIncomplete;
}

RequestReader::Progress RequestReader::finish() {
  const auto& message = parser_->get();
  const bool is_head = message.method() == beast::http::verb::head;
  const bool is_post = message.method() == beast::http::verb::post && post_ == Post::kAllowed;
  if (!is_head && !is_post && message.method() != beast::http::verb::get) return refuse(405);
  if (message.version() / 10 != 1) return refuse(505);
  if (parser_->chunked() || parser_->content_length().value_or(0) > 0) return refuse(413);
  // RFC 9112 §6.3: without `chunked` as the last coding nobody knows where the body ends.
  if (message.count(beast::http::field::transfer_encoding) > 0) return refuse(400);
  if (message.version() >= 11 && message.count(beast::http::field::host) != 1) return refuse(400);
  request_ = {.path = {},
              .query = {},
              .accept = std::string(message[beast::http::field::accept]),
              .host = std::string(message[beast::http::field::host]),
              .is_head = is_head,
              .is_post = is_post,
              .keeps_alive = message.keep_alive()};
  const beast::string_view target = message.target();
  splitTarget({target.data(), target.size()}, request_);
  parser_.reset();
  return Progress::kComplete;
}

RequestReader::Progress RequestReader::refuse(int status) {
  parser_.reset();
  status_ = status;
  return Progress::kRefused;
}

}  // namespace idetcd::http
