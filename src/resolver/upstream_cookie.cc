#include "resolver/upstream_cookie.h"

#include "dns/message_reader.h"

namespace idetcd::resolver {

namespace {

void readOptions(std::span<const uint8_t> rdata, AnswerOptions& options) {
  dns::OptionReader reader(rdata);
  dns::OptionView option;
  while (reader.next(option) == dns::ReadStep::kRead) {
    if (option.code == dns::code(dns::EdnsOption::kCookie) && !options.cookie) options.cookie = option.data;
    if (option.code == dns::code(dns::EdnsOption::kTcpKeepalive) && option.data.size() == 2) {
      options.idle_timeout = dns::load16(option.data.data());
    }
  }
}

// Behind the question, if there is one; 0: it cannot be read.
size_t questionEnd(std::span<const uint8_t> message) {
  if (dns::HeaderView(message.data()).questions() == 0) return dns::kHeaderSize;
  const size_t end = dns::skipName(message.data(), message.size(), dns::kHeaderSize);
  return end != 0 && message.size() - end >= 4 ? end + 4 : 0;
}

using dns::Cookie;

constexpr std::chrono::seconds kLookInterval{1};
constexpr std::chrono::hours kClientLifetime{24};
constexpr std::chrono::minutes kWithoutTime{15};

}  // namespace

AnswerOptions optionsOf(std::span<const uint8_t> message) {
  AnswerOptions options;
  if (message.size() < dns::kHeaderSize) return options;
  options.rcode = dns::HeaderView(message.data()).rcode();
  const size_t end = questionEnd(message);
  if (end == 0) return options;
  dns::MessageReader reader(message, end);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (record.type != dns::code(dns::RrType::kOpt)) continue;
    options.rcode = static_cast<dns::Rcode>(record.ttl >> 24 << 4 | dns::code(options.rcode));
    readOptions(message.subspan(record.rdata, record.rdata_size), options);
    break;
  }
  return options;
}

std::span<const uint8_t> UpstreamCookie::option(BootClock::time_point now) const {
  if (!own_ || now < refused_until_) return {};
  return std::span(option_).first(size_);
}

void UpstreamCookie::draw(SecureRandom& random, BootClock::time_point now) {
  for (size_t i = 0; i < client_.size(); i += 2) dns::store16(&client_[i], random.next16());
  std::ranges::copy(client_, option_.begin());
  size_ = client_.size();
  drawn_at_ = now;
}

void UpstreamCookie::noteOwnAddress(const IpAddress& own, SecureRandom& random, BootClock::time_point now) {
  look_at_ = now + kLookInterval;
  if (own_ == own && now - drawn_at_ < kClientLifetime) return;
  own_ = own;
  draw(random, now);
}

UpstreamCookie::CookieVerdict UpstreamCookie::judge(const AnswerOptions& answer, const Client& sent,
                                              BootClock::time_point now) {
  if (!answer.cookie) return isGiven() && now >= stopped_until_ ? CookieVerdict::kMissing : CookieVerdict::kNone;
  const std::span<const uint8_t> data = *answer.cookie;
  const bool whole = data.size() >= 2 * Cookie::kClientSize && data.size() <= kMaxOptionSize;
  if (!whole || !std::equal(sent.begin(), sent.end(), data.begin())) return CookieVerdict::kWrong;
  tolerated_ = true;
  if (sent == client_) {
    std::ranges::copy(data, option_.begin());
    size_ = data.size();
  }
  return CookieVerdict::kGood;
}

void UpstreamCookie::noteStopped(BootClock::time_point now) {
  size_ = std::min(size_, client_.size());
  stopped_until_ = now + kWithoutTime;
}

void UpstreamCookie::noteRefused(BootClock::time_point now) { refused_until_ = now + kWithoutTime; }

}  // namespace idetcd::resolver
