#include "dns/response.h"

#include "dns/name.h"

namespace idetcd::dns {

namespace {

// A TSIG with BADKEY, unsigned, with the client's key name, algorithm, time and fudge (RFC 8945 §5.2.1, §4.2).
struct TsigError {
  uint8_t record[2 * kMaxNameLength + 26];
  size_t size = 0;
};

TsigError makeTsigError(const Query& query) {
  TsigError error;
  const uint8_t* tsig = query.message + query.tsig_offset;
  size_t available = query.size - size_t{query.tsig_offset};
  const size_t owner = uncompressedNameSize({tsig, available});
  if (owner == 0) return error;
  const uint8_t* rdata = tsig + owner + 10;  // parseQuery() has checked that the fixed part and RDATA are there
  available = load16(tsig + owner + 8);
  const size_t algorithm = uncompressedNameSize({rdata, available});
  if (algorithm == 0 || available - algorithm < 8) return error;

  uint8_t* p = putBytes(error.record, {tsig, owner});
  p = put16(put16(p, code(RrType::kTsig)), code(RrClass::kAny));
  p = put32(p, 0);  // the TTL: 0, whatever the client's is
  p = put16(p, static_cast<uint16_t>(algorithm + 16));
  p = putBytes(p, {rdata, algorithm + 8});       // time signed and fudge, too
  p = put16(p, 0);                               // MAC size
  p = putBytes(p, {query.message, 2});           // original ID
  p = put16(put16(p, code(Rcode::kBadKey)), 0);  // other length
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
