#include "cli/dns_probe.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/file_descriptor.h"
#include "cli/text.h"
#include "dns/labels.h"
#include "dns/message_reader.h"
#include "dns/name.h"
#include "dns/record.h"

namespace idetcd::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Of a response, which has the query's ID, to a question of this type.
Reply<bool> hasAddress(std::span<const uint8_t> message, dns::RrType type) {
  const dns::HeaderView header(message.data());
  if (header.rcode() == dns::Rcode::kNxDomain) return false;
  if (header.rcode() != dns::Rcode::kNoError)
    return notYet(fmt::format("the server answers {}", dns::kRcodeNames.toString(code(header.rcode()))));
  const size_t end = dns::skipName(message.data(), message.size(), dns::kHeaderSize);
  if (header.questions() != 1 || end == 0 || message.size() - end < 4)
    return notYet("the server's answer is malformed");
  dns::MessageReader reader(message, end + 4);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (record.section == dns::Section::kAnswer && record.type == code(type)) return true;
  }
  return false;
}

Reply<bool> ask(int socket, const SocketAddress& server, const dns::Name& name, dns::RrType type,
                std::chrono::milliseconds patience) {
  std::array<uint8_t, dns::kMaxQuestionSize> query;
  const size_t size = dns::writeQuestion(query.data(), dns::kFlagRd, name.wire(), code(type), code(dns::RrClass::kIn));
  if (::getrandom(query.data(), 2, 0) != 2) return failed("no random numbers");
  const auto unanswered = [&] { return notYet(fmt::format("no answer over DNS from {}", server.toString()), kFailed); };
  if (::send(socket, query.data(), size, MSG_NOSIGNAL) < 0) return unanswered();
  const Clock::time_point end = Clock::now() + patience;
  std::array<uint8_t, 4096> answer;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd one{socket, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&one, 1, static_cast<int>(left.count())) == 0) return unanswered();
    const ssize_t got = ::recv(socket, answer.data(), answer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return unanswered();
    const std::span<const uint8_t> message(answer.data(), static_cast<size_t>(got));
    if (message.size() < dns::kHeaderSize || std::memcmp(message.data(), query.data(), 2) != 0) continue;
    if (dns::HeaderView(message.data()).isResponse()) return hasAddress(message, type);
  }
}

}  // namespace

Reply<bool> resolves(const SocketAddress& server, const std::string& name, std::chrono::milliseconds patience) {
  const auto parsed = dns::Name::parse(name);
  if (!parsed) return failed(fmt::format("{} is no domain name: {}", escaped(name), parsed.error().message));
  sockaddr_storage address;
  const socklen_t length = server.toSockaddr(&address);
  const FileDescriptor socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto* any = reinterpret_cast<const sockaddr*>(&address);  // NOLINT: as the interface is
  if (!socket.isOpen() || ::connect(socket.get(), any, length) != 0)
    return notYet(fmt::format("{}: {}", server.toString(), std::strerror(errno)));
  const auto ipv4 = ask(socket.get(), server, *parsed, dns::RrType::kA, patience);
  if (!ipv4 || *ipv4) return ipv4;
  return ask(socket.get(), server, *parsed, dns::RrType::kAaaa, patience);
}

}  // namespace idetcd::cli
