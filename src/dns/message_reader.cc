#include "dns/message_reader.h"

#include "dns/name_reader.h"

namespace idetcd::dns {

size_t matchQuestion(std::span<const uint8_t> message, const Query& query) {
  if (HeaderView(message.data()).questions() != 1) return 0;
  const size_t end = skipName(message.data(), message.size(), kHeaderSize);
  if (end == 0 || message.size() - end < 4) return 0;
  if (!sameName(message.subspan(kHeaderSize, end - kHeaderSize), query.name())) return 0;
  return load16(&message[end]) == query.qtype && load16(&message[end + 2]) == query.qclass ? end + 4 : 0;
}

}  // namespace idetcd::dns
