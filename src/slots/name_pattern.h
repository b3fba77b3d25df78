// The pattern that names a cluster's slots 1, 2, 3, … up to its limit, for example `worker{{.ID}}.tf.local.` or
// `node{{printf "%03d" .ID}}.tf.local.`. PatternParser says what may be in it. No name is kept: an ID gives its name
// and a name its ID in the time that the name's length takes, whatever the limit. Immutable; any thread.
#pragma once

#include "base/result.h"
#include "dns/name.h"

namespace idetcd::slots {

// How a pattern writes an ID: in base 8, 10 or 16, lower case, with zeros in front up to a width. Within one format no
// two IDs are written alike, and a greater ID is never shorter. Pure; any thread.
struct NumberFormat {
  static constexpr int kMaxWidth = 63;  // no label is longer (RFC 1035 §2.3.4)

  int base = 10;  // 8, 10 or 16
  int width = 1;  // digits at least, from 1 to kMaxWidth

  class Digits {
   public:
    std::string_view view() const { return {text_.data(), size_}; }

   private:
    friend struct NumberFormat;
    std::array<char, kMaxWidth> text_;
    size_t size_ = 0;
  };

  // REQUIRES: id > 0, here and below.
  Digits write(int64_t id) const;
  // Digits that write() makes.
  size_t length(int64_t id) const;
  // The ID that `digits` stand for; none if they are no number above 0. They need not be what write() makes of it.
  std::optional<int64_t> read(std::string_view digits) const;

  bool operator==(const NumberFormat&) const = default;
};

class NamePattern {
 public:
  // A missing trailing dot is added. Upper case is folded, that of %X too: names are looked up in lower case, so a key
  // with an upper-case letter is never found. Every name up to `limit` is a host name: at most 255 bytes on the wire,
  // labels of 1 to 63 bytes, letters, digits and '-', no '-' at either end of a label (RFC 952, RFC 1123 §2.1), and,
  // as the C library has it, '_'.
  static Result<NamePattern> parse(std::string_view text, int64_t limit);

  // The name of slot `id`, which is its key in etcd: lower case, with the trailing dot. REQUIRES: 1 <= id <= limit().
  std::string render(int64_t id) const;

  // The inverse of render(): the slot whose name, byte by byte, this is. None if no slot up to the limit has it.
  std::optional<int64_t> recognise(std::string_view name) const;

  int64_t limit() const;
  // The labels behind the last one with a number: the zone that the nodes are authoritative for. The root if none.
  const dns::Name& zone() const;
  // The common prefix of all names (may be empty): where the slots lie in etcd.
  std::string_view literalPrefix() const;
  // As configured.
  const std::string& text() const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace idetcd::slots
