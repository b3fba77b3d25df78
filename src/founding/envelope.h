// The envelope of a message: only machines that have the secret can write it. Messages of others are ignored, without an
// answer.
//
//   bytes   4  "idtF"
//           1  version, 1
//           8  nonce, random: a response has that of its request, and so is no older than it
//           …  the message (message.h)
//          32  HMAC-SHA256 (RFC 2104) of all before
//
// A datagram holds one envelope of at most kMaxDatagram bytes; a larger one goes over TCP as a frame: its size in 4
// bytes, most significant first, and the envelope, of at most kMaxFrame bytes. Contents are no secret: only who knows
// the key can have written them. Keys of one secret with different labels (RFC 5869) say nothing of each other. Pure;
// any thread.
#pragma once

#include "base/result.h"

namespace idetcd::founding {

using Nonce = uint64_t;
using Key = std::array<uint8_t, 32>;

inline constexpr size_t kMaxDatagram = 1232;  // fits into IPv6's least MTU
inline constexpr size_t kMaxFrame = size_t{1} << 20;
inline constexpr std::string_view kMessageLabel = "idetcd founding messages";

// The secret of all machines of a cluster. Wiped from memory with its last copy.
class Secret {
 public:
  // The bytes of its file; white space around them does not count. At least 16 bytes are needed.
  static Result<Secret> parse(std::string_view text);
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  // HKDF-SHA256. Aborts without memory.
  Key derive(std::string_view label) const;

 private:
  explicit Secret(std::string_view bytes) : bytes_(bytes) {}
  std::string bytes_;
};

// Why something is dropped: not whole or too large; not of this protocol; of another version of it; of another secret,
// or tampered with; authentic, but not what machines say; an answer to nothing that was asked; for another machine.
enum class Drop : uint8_t { kSize, kMagic, kVersion, kMac, kBody, kNonce, kReceiver };
inline constexpr size_t kDrops = 7;

struct Opened {
  Nonce nonce = 0;
  std::string_view body;  // of what was opened
};

std::string seal(const Key& key, Nonce nonce, std::string_view body);
tl::expected<Opened, Drop> unseal(const Key& key, std::string_view envelope, size_t max_bytes = kMaxFrame);

// REQUIRES: at most kMaxFrame bytes.
std::string frame(std::string_view envelope);
// The envelope of the first frame of a stream, whose own bytes are 4 more; nothing yet; or Drop::kSize, with which the
// stream ends.
tl::expected<std::optional<std::string_view>, Drop> firstFrame(std::string_view stream);

}  // namespace idetcd::founding
