#include "net/udp_replies.h"

namespace idetcd::net {

UdpReplies::UdpReplies(EventLoop& loop, std::shared_ptr<const UdpSocket> socket, metrics::Counter& lost)
    : socket_(std::move(socket)), lost_(lost), before_wait_(loop, [this] { flush(); }) {}

UdpReplies::~UdpReplies() { flush(); }

void UdpReplies::add(const UdpPeer& peer, std::span<const uint8_t> message) {
  if (message.size() > kMaxMessage) return lost_.add();
  if (count_ == kCapacity || kRoom - used_ < message.size()) flush();
  if (!batch_) batch_ = std::make_unique<Batch>();
  UdpPeer& copy = batch_->peers[count_];
  copy = peer;
  uint8_t* bytes = batch_->bytes.data() + used_;
  std::memcpy(bytes, message.data(), message.size());
  batch_->vectors[count_] = {.iov_base = bytes, .iov_len = message.size()};
  msghdr& header = batch_->messages[count_].msg_hdr;
  header = {};
  header.msg_name = &copy.source;
  header.msg_namelen = copy.source_size;
  header.msg_iov = &batch_->vectors[count_];
  header.msg_iovlen = 1;
  header.msg_control = copy.control_size > 0 ? copy.control.data() : nullptr;
  header.msg_controllen = copy.control_size;
  ++count_;
  used_ += message.size();
}

void UdpReplies::flush() {
  if (count_ == 0) return;
  lost_.add(socket_->sendAll({batch_->messages.data(), count_}));
  count_ = 0;
  used_ = 0;
}

}  // namespace idetcd::net
