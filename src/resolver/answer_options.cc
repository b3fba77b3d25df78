#include "resolver/answer_options.h"

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

}  // namespace idetcd::resolver
