#include "dns/response.h"

namespace idetcd::dns {

namespace {

// Octets of the uncompressed name at `name`, at most `available`; 0 if it is none.
size_t uncompressedSize(const uint8_t* name, size_t available) {
  size_t pos = 0;
  while (pos < available && pos < kMaxNameLength) {
    if (name[pos] == 0) return pos + 1;
    if (name[pos] > kMaxLabelLength) return 0;
    pos += name[pos] + 1u;
  }
  return 0;
}

// A TSIG record that says BADKEY, unsigned, with the client's key name, algorithm, time and fudge (RFC 8945 §5.2.1,
// §4.2).
struct TsigError {
  uint8_t record[2 * kMaxNameLength + 26];
  size_t size = 0;
};

TsigError makeTsigError(const Query& query) {
  TsigError error;
  const uint8_t* tsig = query.message + query.tsig_offset;
  size_t available = query.size - size_t{query.tsig_offset};
  const size_t owner = uncompressedSize(tsig, available);
  if (owner == 0) return error;
  const uint8_t* rdata = tsig + owner + 10;  // parseQuery() has checked that the fixed part and RDATA are there
  available = load16(tsig + owner + 8);
  const size_t algorithm = uncompressedSize(rdata, available);
  if (algorithm == 0 || available - algorithm < 8) return error;

  uint8_t* p = error.record;
  const auto put = [&p](const void* data, size_t size) {
    std::memcpy(p, data, size);
    p += size;
  };
  const auto put16 = [&p](uint16_t value) {
    store16(p, value);
    p += 2;
  };
  put(tsig, owner);
  put(tsig + owner, 8);  // type, class, TTL
  put16(static_cast<uint16_t>(algorithm + 16));
  put(rdata, algorithm + 8);  // algorithm, time signed, fudge
  put16(0);                   // MAC size
  put(query.message, 2);      // original ID
  put16(17);                  // BADKEY
  put16(0);                   // other length
  error.size = static_cast<size_t>(p - error.record);
  return error;
}

}  // namespace

size_t writeErrorResponse(const Query& query, size_t limit) {
  const TsigError tsig = query.tsig_offset != 0 ? makeTsigError(query) : TsigError{};
  Rcode rcode = query.error;
  if (rcode == Rcode::kNotAuth && tsig.size == 0) rcode = Rcode::kFormErr;
  ResponseBuilder response(query, limit);
  size_t size = response.finish(rcode, 0);
  if (rcode == Rcode::kNotAuth && limit >= size && limit - size >= tsig.size) {  // TSIG is the last record, behind OPT
    std::memcpy(query.message + size, tsig.record, tsig.size);
    store16(query.message + 10, static_cast<uint16_t>(load16(query.message + 10) + 1));
    size += tsig.size;
  }
  return size;
}

}  // namespace idetcd::dns
