#include "directive/transfer/notifier.h"

#include <ctime>

#include "dns/message_reader.h"
#include "dns/record.h"
#include "tsig/signature.h"

namespace idetcd::directive {

namespace {

constexpr uint16_t kNotifyFlags = static_cast<uint16_t>(dns::code(dns::Opcode::kNotify) << 11) | dns::kFlagAa;

std::string keyOf(const dns::Name& name) { return {reinterpret_cast<const char*>(name.data()), name.size()}; }

}  // namespace

// Of one zone to one secondary.
class Notifier::Notice final : public net::UdpQueryHandler {
 public:
  Notice(Notifier& notifier, dns::Name zone, const SocketAddress& to, const tsig::Key* key)
      : notifier_(notifier), zone_(zone), to_(to), key_(key) {}

  bool isDue(BootClock::time_point now) const { return now >= next_; }
  bool isWaiting() const { return socket_.isOpen(); }
  // False: that was the last time.
  bool send(BootClock::time_point now) {
    if (tries_ == kTries) {
      notifier_.context_.log.warning("{} does not answer NOTIFY of {}", to_.toString(), zone_.toString());
      return false;
    }
    std::array<uint8_t, dns::kMaxQuestionSize + 2 * dns::kMaxNameLength + 128> buffer;
    size_t size = dns::writeQuestion(buffer.data(), kNotifyFlags, zone_.wire(), dns::code(dns::RrType::kSoa),
                                     dns::code(dns::RrClass::kIn));
    id_ = notifier_.random_.next16();
    dns::store16(buffer.data(), id_);
    if (key_ != nullptr) size = tsig::Signer(*key_).sign(buffer, size, static_cast<uint64_t>(std::time(nullptr)));
    next_ = now + kFirstWait * (1 << tries_++);
    notifier_.sockets_->send(to_, {buffer.data(), size}, *this, socket_);
    return true;
  }

  void onDatagram(std::span<const uint8_t> datagram) override {
    if (datagram.size() < dns::kHeaderSize) return;
    const dns::HeaderView header(datagram.data());
    if (!header.isResponse() || header.id() != id_ || header.opcode() != dns::Opcode::kNotify) return;
    if (header.rcode() != dns::Rcode::kNoError)
      notifier_.context_.log.warning("{} answers NOTIFY of {} with {}", to_.toString(), zone_.toString(),
                                     dns::kRcodeNames.toString(dns::code(header.rcode())));
    notifier_.notices_.erase({keyOf(zone_), to_});  // and this with it
  }
  void onError(int) override { socket_.close(); }

 private:
  Notifier& notifier_;
  const dns::Name zone_;
  const SocketAddress to_;
  const tsig::Key* const key_;
  net::UdpQuerySocket socket_;
  uint16_t id_ = 0;
  int tries_ = 0;
  BootClock::time_point next_{};
};

Notifier::Notifier(net::EventLoop& loop, Context context)
    : context_(std::move(context)), loop_(loop), versions_(context_.zones.size()), timer_(loop, [this] { onTimer(); }) {
  timer_.start(kInterval, kInterval);
}

Notifier::~Notifier() = default;

void Notifier::onTimer() {
  for (size_t i = 0; i < context_.zones.size(); ++i) look(i);
  if (!notices_.empty()) sendDue();
}

// The version first: what changes meanwhile is looked at again.
void Notifier::look(size_t index) {
  const uint64_t version = context_.zones[index]->version();
  if (versions_[index] == version) return;
  versions_[index] = version;
  for (const auto& zone : context_.zones[index]->serials()) {
    const auto [told, is_new] = serials_.emplace(keyOf(zone.zone), zone.serial);
    if (!is_new && std::exchange(told->second, zone.serial) == zone.serial) continue;
    tell(zone);
  }
}

void Notifier::tell(const zones::PublishedZones::Serial& changed) {
  const TransferSettings* const settings = settingsOf(*context_.settings, changed.zone.wire());
  if (settings == nullptr) return;
  const tsig::Key* const key = settings->key.empty() ? nullptr : context_.key_of(settings->key);
  for (const SocketAddress& address : settings->notified) {
    notices_.insert_or_assign({keyOf(changed.zone), address},
                              std::make_unique<Notice>(*this, changed.zone, address, key));
  }
}

void Notifier::sendDue() {
  if (!sockets_) {
    auto made = net::UdpQuerySockets::make(loop_, random_);
    if (!made) return;
    sockets_ = std::move(*made);
  }
  const auto now = BootClock::now();
  auto waiting = static_cast<size_t>(std::ranges::count_if(notices_, [](const auto& item) { return item.second->isWaiting(); }));
  for (auto notice = notices_.begin(); notice != notices_.end();) {
    Notice& next = *notice->second;
    const bool may_send = next.isDue(now) && (next.isWaiting() || waiting < kMostAtOnce);
    if (may_send && !next.isWaiting()) ++waiting;
    notice = may_send && !next.send(now) ? notices_.erase(notice) : std::next(notice);
  }
}

}  // namespace idetcd::directive
