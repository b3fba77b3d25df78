// Answers queries for names of the cluster where packets come in (XDP), and passes on everything else untouched. What it
// answers it answers as the sockets would, byte for byte; what it is not certain of is the process's.
//
// A name is read once: each byte is checked, folded to lower case (RFC 4343) and hashed in registers, never copied. The
// question stays where it is; the answer of a fixed size goes behind it (bpf_xdp_adjust_tail). Functions that are not
// static are verified once each, not once for each caller, which keeps the number of verified instructions small.
// libbpf's headers use types of linux/bpf.h.
// clang-format off
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "kernel/layout.h"
// clang-format on

#define INLINE static __attribute__((always_inline)) inline
#define NO_UNROLL _Pragma("clang loop unroll(disable)")

enum {
  kHeader = 12,
  kMaxName = 255,
  kQuestionTail = 4,  // type and class
  kOpt = 11,          // OPT without options (RFC 6891 §6.1.2)
  kOffsetMask = 0x1ff,

  kFlagQr = 0x8000,
  kFlagAa = 0x0400,
  kFlagRd = 0x0100,
  kFlagRa = 0x0080,
  kFlagCd = 0x0010,
  kNxDomain = 3,

  kClassIn = 1,
  kA = 1,
  kSoa = 6,
  kPtr = 12,
  kTxt = 16,
  kAaaa = 28,
  kOptType = 41,
  kMinMeta = 128,  // RFC 6895 §3.1: from here on, to 255, types ask for something else than a record
  kMaxMeta = 255,
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct Settings);
} settings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, kListeners);
  __type(key, struct ListenerKey);
  __type(value, struct Listener);
} listeners SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, kZones);
  __type(key, __u32);
  __type(value, struct Zone);
} zones SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, kDefaultNames);
  __type(key, struct NameKey);
  __type(value, struct Name);
} names SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, kDefaultNames);
  __type(key, struct NameKey);
  __type(value, struct Pointer);
} pointers SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, kMeters);
  __type(key, __u32);
  __type(value, struct Meter);
} meters SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, kPassReasons);
  __type(key, __u32);
  __type(value, __u64);
} passed SEC(".maps");

// A query on its way through the program. Offsets are from the beginning of the frame.
struct Query {
  __u16 dns;  // the DNS header, behind UDP
  __u16 name_size;
  __u16 type;
  __u16 flags;  // of the header
  __u8 is_v4;
  __u8 has_edns;
  __u8 dnssec_ok;
  // This machine's own stack has left the UDP checksum to a device, and the packet keeps that mark (CHECKSUM_PARTIAL): what
  // is sent has to leave it to the device, too.
  __u8 is_partial;
};

INLINE int pass(enum PassReason reason) {
  __u32 key = reason;
  __u64* count = bpf_map_lookup_elem(&passed, &key);
  if (count) ++*count;
  return XDP_PASS;
}

INLINE __u32 fold(__u32 sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  return (sum & 0xffff) + (sum >> 16);
}

// The ones' complement sum of [offset, offset + size) of the frame; negative: it is not there. `size` is at most 511.
__attribute__((noinline)) int sumBytes(struct xdp_md* ctx, __u32 offset, __u32 size) {
  const __u8* data = (const __u8*)(long)ctx->data;
  const __u8* end = (const __u8*)(long)ctx->data_end;
  __u32 sum = 0;
  __u32 i;
  data += offset & kOffsetMask;
  size &= kOffsetMask;
  NO_UNROLL for (i = 0; i < (kOffsetMask + 1) / 2; ++i) {
    const __u8* at = data + 2 * i;
    if (2 * i + 2 > size) break;
    if (at + 2 > end) return -1;
    sum += *(const __u16*)at;
  }
  if (size & 1) {
    const __u8* at = data + ((size - 1) & kOffsetMask);
    if (at + 1 > end) return -1;
    sum += *at;  // the first of two bytes, the other one 0
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error the last byte goes into the upper half
#endif
  }
  return fold(sum);
}

// A name that is to be read.
struct Reading {
  struct NameKey key;  // where its hash begins, and what it comes to
  __u16 offset;        // of the name in the frame
  __u16 size;          // bytes
  __u16 zone_offset;   // of the zone's name in the name
};

INLINE __u32 zoneOffset(const struct Reading* reading) { return *(const volatile __u16*)&reading->zone_offset; }

// Reads a name of this size: what comes before the zone's name is hashed, and that must be the zone's. Negative: the
// name is invalid or not in this zone.
//
// The verifier would go through the loop once for each length of each label, and for each place of the zone's name, if it
// knew of them. So `left`, what is left of the label, is counted in steps of a large odd number, whose multiples it does
// not follow, and the zone's place is read anew each time.
__attribute__((noinline)) int readName(struct xdp_md* ctx, struct Reading* reading, const struct Zone* zone) {
  const __u64 kStep = 0x9e3779b97f4a7c15ULL;
  enum { kNul = 0x100 };  // a byte of a label that is 0, and no root
  const __u8* data = (const __u8*)(long)ctx->data;
  const __u8* end = (const __u8*)(long)ctx->data_end;
  __u64 hash[2];
  __u64 left;
  __u32 i, size;
  if (!reading || !zone) return -1;
  size = reading->size;
  data += reading->offset & kOffsetMask;
  hash[0] = reading->key.hash[0];
  hash[1] = reading->key.hash[1];
  left = (__u64)(reading->offset >> 15) * kStep;  // 0
  NO_UNROLL for (i = 0; i < kMaxName; ++i) {
    const __u8* at = data + i;
    __u32 byte;
    if (i >= size) return -1;
    if (at + 1 > end) return -1;
    byte = *at;
    if (left == 0) {
      if (byte > 63) return -1;
      left = byte * kStep;
    } else {
      if (i == zoneOffset(reading)) return -1;
      left -= kStep;
      if (byte - 'A' <= 'Z' - 'A') byte |= 0x20;
      if (byte == 0) byte = kNul;
    }
    if (i < zoneOffset(reading)) {
      hashStep(hash, byte);
    } else if ((__u8)byte != zone->name[(i - zoneOffset(reading)) & (kZoneName - 1)]) {
      return -1;
    }
    if (byte == 0) break;  // the root
  }
  if (i + 1 != size) return -1;
  reading->key.hash[0] = hash[0];
  reading->key.hash[1] = hash[1];
  return 0;
}

INLINE __u32 typeIndex(__u16 type) {
  switch (type) {
    case kA:
      return kTypeA;
    case kAaaa:
      return kTypeAaaa;
    case 15:
      return kTypeMx;
    case kSoa:
      return kTypeSoa;
    case 5:
      return kTypeCname;
    case kPtr:
      return kTypePtr;
    case 16:
      return kTypeTxt;
    case 2:
      return kTypeNs;
    case 33:
      return kTypeSrv;
    case 43:
      return kTypeDs;
    case 48:
      return kTypeDnskey;
    case 46:
      return kTypeRrsig;
    case 47:
      return kTypeNsec;
    case 50:
      return kTypeNsec3;
    case 65:
      return kTypeHttps;
    default:
      return kTypeOther;
  }
}

INLINE __u32 sizeBucket(__u32 size) {
  if (size <= 100) return 0;
  if (size <= 200) return 1;
  if (size <= 300) return 2;
  return size <= 400 ? 3 : 4;
}

INLINE void count(const struct Query* query, __u32 meter, __u32 request_size, __u32 response_size, int is_nxdomain) {
  struct Meter* counts = bpf_map_lookup_elem(&meters, &meter);
  __u32 type = typeIndex(query->type);
  if (!counts) return;
  ++counts->answered[query->is_v4 ? 0 : 1][type][is_nxdomain ? 1 : 0];
  if (query->dnssec_ok) ++counts->with_do;
  counts->request_bytes += request_size;
  counts->response_bytes += response_size;
  ++counts->request_sizes[sizeBucket(request_size)];
  ++counts->response_sizes[sizeBucket(response_size)];
}

// A record's head: owner, type, class IN, TTL (network byte order), RDLENGTH. The owner is the question's name.
INLINE void putHead(__u8* to, __u16 type, __u32 ttl, __u16 size) {
  *(__u16*)to = bpf_htons(0xc000 | kHeader);
  *(__u16*)(to + 2) = bpf_htons(type);
  *(__u16*)(to + 4) = bpf_htons(kClassIn);
  *(__u32*)(to + 6) = ttl;
  *(__u16*)(to + 10) = bpf_htons(size);
}

// The record section of the response.
struct Body {
  __u32 size;  // bytes of its one record
  __u16 flags;
  __u8 is_answer;  // else it is the zone's SOA, in the authority section
  __u8 is_nxdomain;
  __u16 meter;
};

INLINE __u32 pseudoSum(const struct iphdr* ip, __u16 size) {
  return (ip->saddr & 0xffff) + (ip->saddr >> 16) + (ip->daddr & 0xffff) + (ip->daddr >> 16) + size +
         bpf_htons(IPPROTO_UDP);
}

// The record stands in the frame. Writes OPT and the headers of DNS, UDP and IP, and turns the frame around. What came by
// the loopback interface is from this machine and now to it, so the response is passed up the stack: sending it
// would bring it to the same place, and a second time through the device and this program.
INLINE int finish(struct xdp_md* ctx, const struct Query* query, const struct Body* body) {
  __u8* data = (__u8*)(long)ctx->data;
  __u8* end = (__u8*)(long)ctx->data_end;
  __u32 question = (query->dns + kHeader + query->name_size + kQuestionTail) & kOffsetMask;
  __u32 opt = (question + body->size) & kOffsetMask;
  __u32 request_size = kHeader + query->name_size + kQuestionTail + (query->has_edns ? kOpt : 0);
  __u32 response_size = request_size + body->size;
  __u8* dns = data + (query->dns & kOffsetMask);
  if (query->has_edns) {
    __u8* at = data + opt;
    if (at + kOpt > end) return XDP_ABORTED;
    *at = 0;
    *(__u16*)(at + 1) = bpf_htons(kOptType);
    *(__u16*)(at + 3) = bpf_htons(1232);
    *(__u16*)(at + 5) = 0;
    *(__u16*)(at + 7) = query->dnssec_ok ? bpf_htons(0x8000) : 0;
    *(__u16*)(at + 9) = 0;
  }
  if (dns + kHeader > end) return XDP_ABORTED;
  *(__u16*)(dns + 2) = bpf_htons(kFlagQr | kFlagAa | body->flags | (query->flags & (kFlagRd | kFlagCd)));
  *(__u16*)(dns + 6) = body->is_answer ? bpf_htons(1) : 0;
  *(__u16*)(dns + 8) = body->is_answer ? 0 : bpf_htons(1);
  *(__u16*)(dns + 10) = query->has_edns ? bpf_htons(1) : 0;

  struct ethhdr* eth = (struct ethhdr*)data;
  if (query->is_v4) {
    struct iphdr* ip = (struct iphdr*)(eth + 1);
    struct udphdr* udp = (struct udphdr*)(ip + 1);
    if ((__u8*)(udp + 1) > end) return XDP_ABORTED;
    __u32 address = ip->saddr;
    ip->saddr = ip->daddr;
    ip->daddr = address;
    ip->tos = 0;
    ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(*udp) + response_size);
    ip->id = 0;
    ip->frag_off = bpf_htons(0x4000);
    ip->ttl = 64;
    ip->check = 0;
    __u32 sum = 0;
    const __u16* word = (const __u16*)ip;
    _Pragma("clang loop unroll(full)") for (int i = 0; i < 10; ++i) sum += word[i];
    ip->check = ~fold(sum);
    __u16 port = udp->source;
    udp->source = udp->dest;
    udp->dest = port;
    udp->len = bpf_htons(sizeof(*udp) + response_size);
    udp->check = query->is_partial ? fold(pseudoSum(ip, udp->len)) : 0;
  } else {
    struct ipv6hdr* ip = (struct ipv6hdr*)(eth + 1);
    struct udphdr* udp = (struct udphdr*)(ip + 1);
    if ((__u8*)(udp + 1) > end) return XDP_ABORTED;
    struct in6_addr address = ip->saddr;
    ip->saddr = ip->daddr;
    ip->daddr = address;
    *(__u32*)ip = bpf_htonl(0x60000000);
    ip->payload_len = bpf_htons(sizeof(*udp) + response_size);
    ip->hop_limit = 64;
    __u16 port = udp->source;
    udp->source = udp->dest;
    udp->dest = port;
    udp->len = ip->payload_len;
    udp->check = 0;
    // RFC 8200 §8.1: addresses, length and next header, then UDP with its data.
    const __u32 covered = 2 * sizeof(struct in6_addr) + (query->is_partial ? 0 : sizeof(*udp) + response_size);
    int sum = sumBytes(ctx, sizeof(*eth) + 8, covered & kOffsetMask);
    if (sum < 0) return XDP_ABORTED;
    data = (__u8*)(long)ctx->data;
    end = (__u8*)(long)ctx->data_end;
    eth = (struct ethhdr*)data;
    ip = (struct ipv6hdr*)(eth + 1);
    udp = (struct udphdr*)(ip + 1);
    if ((__u8*)(udp + 1) > end) return XDP_ABORTED;
    const __u16 check = fold(sum + ip->payload_len + bpf_htons(IPPROTO_UDP));
    udp->check = query->is_partial ? check : check == 0xffff ? 0xffff : (__u16)~check;
  }
  count(query, body->meter, request_size, response_size, body->is_nxdomain);
  if (ctx->ingress_ifindex == kLoopback) return XDP_PASS;
  __u8 mac[ETH_ALEN];
  __builtin_memcpy(mac, eth->h_source, ETH_ALEN);
  __builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
  __builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
  return XDP_TX;
}

enum Room { kRoomMade = 0, kNoRoom = -1, kBroken = -2 };

// Makes the frame longer by `size` bytes, 8 to 127. Where the driver has no room behind it, as a veth, and it `may_move`,
// the frame is moved into the headroom. kNoRoom: the frame is as it was.
__attribute__((noinline)) int makeRoom(struct xdp_md* ctx, __u32 size, __u32 may_move) {
  enum { kWord = 8, kSizeMask = 127 };
  __u32 i;
  size &= kSizeMask;
  if (bpf_xdp_adjust_tail(ctx, size) == 0) return kRoomMade;
  const __u64 used = (const __u8*)(long)ctx->data_end - (const __u8*)(long)ctx->data;
  if (!may_move || used < kWord || used > kOffsetMask) return kNoRoom;
  if (bpf_xdp_adjust_head(ctx, -(int)size) != 0) return kNoRoom;
  __u8* data = (__u8*)(long)ctx->data;
  const __u8* end = (const __u8*)(long)ctx->data_end;
  NO_UNROLL for (i = 0; i < (kOffsetMask + 1) / kWord; ++i) {
    __u8* to = data + kWord * i;
    const __u8* from = to + size;
    if (kWord * (i + 1) > used) break;
    if (to + kWord > end || from + kWord > end) return kBroken;
    *(__u64*)to = *(const __u64*)from;
  }
  // The last word, some of which has been moved already. What it is read from was not written to: `size` >= kWord.
  __u8* to = data + ((used - kWord) & kOffsetMask);
  const __u8* from = to + size;
  if (to + kWord > end || from + kWord > end) return kBroken;
  *(__u64*)to = *(const __u64*)from;
  return kRoomMade;
}

// A packet whose checksum is left to the device stores its offset, so its data must not be moved.
INLINE __u32 mayMove(const struct Query* query) { return !query->is_partial; }

INLINE int failed(enum Room room) { return room == kNoRoom ? pass(kPassRoom) : XDP_ABORTED; }

// The first `size` bytes of `name`, at `offset` of the frame. Negative: there is no such place.
struct ZoneName {
  __u8 bytes[kZoneName];
};
__attribute__((noinline)) int putBytes(struct xdp_md* ctx, __u32 offset, const struct ZoneName* name, __u32 size) {
  __u8* data = (__u8*)(long)ctx->data;
  const __u8* end = (const __u8*)(long)ctx->data_end;
  __u32 i;
  if (!name) return -1;
  data += offset & kOffsetMask;
  NO_UNROLL for (i = 0; i < kZoneName; ++i) {
    __u8* at = data + i;
    if (i >= size) break;
    if (at + 1 > end) return -1;
    *at = name->bytes[i];
  }
  return 0;
}

// Where the record goes: behind the question. Never null, because the frame was extended; the verifier
// needs the check.
INLINE __u8* recordAt(struct xdp_md* ctx, const struct Query* query, __u32 size) {
  __u8* data = (__u8*)(long)ctx->data;
  __u32 question = (query->dns + kHeader + query->name_size + kQuestionTail) & kOffsetMask;
  __u8* at = data + question;
  return at + size > (__u8*)(long)ctx->data_end ? 0 : at;
}

INLINE int answerAddress(struct xdp_md* ctx, const struct Query* query, const struct Name* name, struct Body* body) {
  __u8* at;
  int room;
  body->is_answer = 1;
  if (query->type == kA) {
    body->size = kHeader + 4;
    room = makeRoom(ctx, kHeader + 4, mayMove(query));
    if (room != kRoomMade) return failed(room);
    at = recordAt(ctx, query, kHeader + 4);
    if (!at) return XDP_ABORTED;
    putHead(at, kA, name->ttl, 4);
    __builtin_memcpy(at + kHeader, name->ipv4, 4);
  } else {
    body->size = kHeader + 16;
    room = makeRoom(ctx, kHeader + 16, mayMove(query));
    if (room != kRoomMade) return failed(room);
    at = recordAt(ctx, query, kHeader + 16);
    if (!at) return XDP_ABORTED;
    putHead(at, kAaaa, name->ttl, 16);
    __builtin_memcpy(at + kHeader, name->ipv6, 16);
  }
  return finish(ctx, query, body);
}

// `zone_offset`: of the zone's name in the question's.
INLINE int answerSoa(struct xdp_md* ctx, const struct Query* query, const struct Zone* zone, __u32 zone_offset,
                     struct Body* body) {
  // Record: owner (2), head, `ns.dns` and pointer, `hostmaster` and pointer, serial.
  enum { kNameServer = 19, kMailbox = 32, kSerial = 34 };
  const __u16 pointer = bpf_htons(0xc000 | (kHeader + zone_offset));
  __u8* at;
  body->size = kSoaSize;
  const int room = makeRoom(ctx, kSoaSize, mayMove(query));
  if (room != kRoomMade) return failed(room);
  at = recordAt(ctx, query, kSoaSize);
  if (!at) return XDP_ABORTED;
  __builtin_memcpy(at, zone->soa, kSoaSize);
  *(__u16*)at = pointer;
  *(__u16*)(at + kNameServer) = pointer;
  *(__u16*)(at + kMailbox) = pointer;
  *(__u32*)(at + kSerial) = bpf_htonl(*(const volatile __u32*)&zone->serial);
  return finish(ctx, query, body);
}

INLINE int answerPointer(struct xdp_md* ctx, const struct Query* query, const struct Pointer* pointer,
                         const struct Zone* zone, __u32 zone_size, struct Body* body) {
  struct ZoneName labels = {};
  const __u32 rdata = query->dns + kHeader + query->name_size + kQuestionTail + kHeader;
  __u8* at;
  __builtin_memcpy(labels.bytes, pointer->labels, kPointerLabels);
  body->is_answer = 1;
  body->size = kHeader + pointer->labels_size + zone_size;
  const int room = makeRoom(ctx, body->size, mayMove(query));
  if (room != kRoomMade) return failed(room);
  at = recordAt(ctx, query, kHeader);
  if (!at) return XDP_ABORTED;
  putHead(at, kPtr, zone->pointer_ttl, pointer->labels_size + zone_size);
  if (putBytes(ctx, rdata, &labels, pointer->labels_size) != 0) return XDP_ABORTED;
  if (putBytes(ctx, rdata + pointer->labels_size, (const struct ZoneName*)zone->name, zone_size) != 0)
    return XDP_ABORTED;
  return finish(ctx, query, body);
}

// Values that are read before a look-up and hold for its result.
struct Moment {
  __u64 fresh_until;
  __u32 changes;
};

INLINE struct Moment momentOf(const struct Zone* zone) {
  struct Moment moment = {.fresh_until = *(const volatile __u64*)&zone->fresh_until,
                          .changes = *(const volatile __u32*)&zone->changes};
  return moment;
}

// After the look-up, too: a zone is marked not fresh before its outdated names are removed.
INLINE int isFresh(const struct Zone* zone, const struct Moment* before) {
  const __u64 now = bpf_ktime_get_boot_ns();
  return now < before->fresh_until && now < *(const volatile __u64*)&zone->fresh_until;
}

// After everything else has been read: nothing was written since.
INLINE int isUnchanged(const struct Zone* zone, const struct Moment* before) {
  return (before->changes & 1) == 0 && before->changes == *(const volatile __u32*)&zone->changes;
}

// A PTR question: names of addresses have no zone here, and what is not there is passed.
INLINE int answerReverse(struct xdp_md* ctx, const struct Query* query, const struct Settings* with,
                         const struct ListenerZone* of) {
  // All of the name is hashed.
  struct Reading reading = {.offset = query->dns + kHeader, .size = query->name_size, .zone_offset = query->name_size};
  struct Pointer pointer;
  struct Body body = {};
  __u32 index = of->zone;
  const struct Zone* zone = bpf_map_lookup_elem(&zones, &index);
  const struct Pointer* found;
  if (!zone) return pass(kPassZone);
  hashBegin(reading.key.hash, with->seed, of->zone);
  if (readName(ctx, &reading, zone) != 0) return pass(kPassMessage);
  const struct Moment before = momentOf(zone);
  found = bpf_map_lookup_elem(&pointers, &reading.key);
  if (!found) return pass(kPassName);
  pointer = *found;
  if (checkOf(reading.key.hash, (const __u64*)&pointer, kPointerWords) != pointer.check) return pass(kPassChanging);
  const __u32 zone_size = *(const volatile __u16*)&zone->name_size;
  if (pointer.zone != of->zone || pointer.labels_size > kPointerLabels) return pass(kPassName);
  if (zone_size == 0 || zone_size > kZoneName) return pass(kPassName);
  if (!isFresh(zone, &before)) return pass(kPassExpired);
  body.flags = of->flags & kRecursion ? kFlagRa : 0;
  body.meter = of->meter;
  return answerPointer(ctx, query, &pointer, zone, zone_size, &body);
}

// A negative number: the name is of another zone, which is to be tried next.
INLINE int answerInZone(struct xdp_md* ctx, const struct Query* query, const struct Settings* with,
                        const struct ListenerZone* of) {
  struct Reading reading = {.offset = query->dns + kHeader, .size = query->name_size};
  struct Name name;
  struct Body body = {};
  __u32 index = of->zone;
  const struct Zone* zone = bpf_map_lookup_elem(&zones, &index);
  const struct Name* found;
  if (!zone) return -1;
  const __u32 zone_size = *(const volatile __u16*)&zone->name_size;
  if (zone_size == 0 || zone_size > kZoneName || zone_size >= query->name_size) return -1;
  const __u32 zone_offset = query->name_size - zone_size;
  reading.zone_offset = zone_offset;
  hashBegin(reading.key.hash, with->seed, of->zone);
  if (readName(ctx, &reading, zone) != 0) return -1;
  const struct Moment before = momentOf(zone);
  found = bpf_map_lookup_elem(&names, &reading.key);
  if (!isFresh(zone, &before)) return pass(kPassExpired);
  body.flags = of->flags & kRecursion ? kFlagRa : 0;
  body.meter = of->meter;
  if (!found) {
    if (!(of->flags & kWhole) || !*(const volatile __u32*)&zone->is_whole) return pass(kPassName);
    if (!isUnchanged(zone, &before)) return pass(kPassChanging);
    body.flags |= kNxDomain;
    body.is_nxdomain = 1;
    return answerSoa(ctx, query, zone, zone_offset, &body);
  }
  name = *found;
  if (checkOf(reading.key.hash, (const __u64*)&name, kNameWords) != name.check) return pass(kPassChanging);
  if (name.zone != of->zone || (name.flags & kElsewhere)) return pass(kPassName);
  if ((of->flags & kHeldOnly) && !(name.flags & kHeld)) return pass(kPassName);
  if ((query->type == kA && (name.flags & kHasA)) || (query->type == kAaaa && (name.flags & kHasAaaa)))
    return answerAddress(ctx, query, &name, &body);
  if (query->type == kTxt && (name.flags & kHasText)) return pass(kPassName);
  return answerSoa(ctx, query, zone, zone_offset, &body);
}

// The DNS message of a query to one of our addresses. `size`: of the message.
INLINE int answerMessage(struct xdp_md* ctx, struct Query* query, const struct Listener* listener, __u32 size) {
  const __u8* data = (const __u8*)(long)ctx->data;
  const __u8* end = (const __u8*)(long)ctx->data_end;
  const __u8* dns = data + (query->dns & kOffsetMask);
  __u32 zero = 0, i;
  const struct Settings* with = bpf_map_lookup_elem(&settings, &zero);
  if (!with) return XDP_PASS;
  if (dns + kHeader > end) return pass(kPassMessage);
  query->flags = bpf_ntohs(*(const __u16*)(dns + 2));
  // A query (QR and opcode 0) with one question and nothing else, or one more record.
  if (query->flags & 0xf800) return pass(kPassMessage);
  if (*(const __u32*)(dns + 4) != bpf_htonl(0x10000) || *(const __u16*)(dns + 8) != 0) return pass(kPassMessage);
  __u16 additional = *(const __u16*)(dns + 10);
  if (additional != 0) {
    if (additional != bpf_htons(1)) return pass(kPassMessage);
    query->has_edns = 1;
    if (size < kHeader + 1 + kQuestionTail + kOpt) return pass(kPassMessage);
    size -= kOpt;
  }
  if (size < kHeader + 1 + kQuestionTail || size > kHeader + kMaxName + kQuestionTail) return pass(kPassMessage);
  query->name_size = size - kHeader - kQuestionTail;

  __u32 tail = (query->dns + kHeader + query->name_size) & kOffsetMask;
  const __u8* at = data + tail;
  if (at + kQuestionTail > end) return pass(kPassMessage);
  // First, since it is elsewhere if the OPT has options: then `at` is anywhere.
  if (query->has_edns) {
    const __u8* opt = at + kQuestionTail;
    if (opt + kOpt > end) return pass(kPassMessage);
    // The root's OPT, version 0, without options (RFC 6891 §6.1.2).
    if (opt[0] != 0 || *(const __u16*)(opt + 1) != bpf_htons(kOptType) || opt[6] != 0 || *(const __u16*)(opt + 9) != 0)
      return pass(kPassEdns);
    query->dnssec_ok = opt[7] >> 7;
  }
  query->type = bpf_ntohs(*(const __u16*)at);
  if (*(const __u16*)(at + 2) != bpf_htons(kClassIn)) return pass(kPassType);
  if (query->type == 0 || query->type == kOptType || (query->type >= kMinMeta && query->type <= kMaxMeta))
    return pass(kPassType);

  NO_UNROLL for (i = 0; i < kListenerZones; ++i) {
    if (i >= listener->zone_count) break;
    int verdict = answerInZone(ctx, query, with, &listener->zones[i]);
    if (verdict >= 0) return verdict;
  }
  if (query->type == kPtr && listener->has_reverse) return answerReverse(ctx, query, with, &listener->reverse);
  return pass(kPassZone);
}

// Whether the UDP checksum is right, or the half of one that this machine's own stack leaves to the device
// (CHECKSUM_PARTIAL), as always on the loopback interface. `pseudo`: the sum of the pseudo-header.
INLINE int isIntact(struct xdp_md* ctx, struct Query* query, const struct Listener* listener, __u16 check, __u32 pseudo,
                    __u32 udp_offset, __u32 size) {
  const int is_half = check == fold(pseudo);
  if (is_half && ctx->ingress_ifindex == kLoopback) return 1;
  int sum = sumBytes(ctx, udp_offset, size & kOffsetMask);
  const int is_whole = sum >= 0 && fold(sum + fold(pseudo)) == 0xffff;
  if (is_whole && is_half) return !listener->is_behind_driver;  // which of the two it is, only the stack knows
  if (is_whole) return 1;
  // In native mode the driver builds a new packet, without the mark.
  if (is_half && listener->is_behind_driver) query->is_partial = 1;
  return is_half;
}

INLINE int isSameHardwareAddress(const __u8* a, const __u8* b) {
  return *(const __u16*)a == *(const __u16*)b && *(const __u32*)(a + 2) == *(const __u32*)(b + 2);
}

// The stack of a machine with `address` drops what seems to come from its subnet as a whole.
INLINE int isOfWholeSubnet(__u32 source, __u32 address, __u8 prefix_length) {
  if (prefix_length > 30) return 0;
  const __u32 hosts = 0xffffffff >> prefix_length;
  if ((bpf_ntohl(source) ^ bpf_ntohl(address)) & ~hosts) return 0;
  const __u32 host = bpf_ntohl(source) & hosts;
  return host == 0 || host == hosts;
}

// An address of ::/8 that is not ::1: mapped IPv4, which no IPv6 packet has to have, and reserved ones.
INLINE int isReserved(const struct in6_addr* address) {
  const __u32* words = (const __u32*)address;
  if (*(const __u8*)address != 0) return 0;
  return words[0] || words[1] || words[2] || words[3] != bpf_htonl(1);
}

// Whether the source of a packet is its destination, or the whole subnet of that.
INLINE int isFromItself(const struct ethhdr* eth, const struct Query* query, const struct Listener* listener) {
  if (query->is_v4) {
    const struct iphdr* ip = (const struct iphdr*)(eth + 1);
    return ip->saddr == ip->daddr || isOfWholeSubnet(ip->saddr, ip->daddr, listener->prefix_length);
  }
  const struct ipv6hdr* ip = (const struct ipv6hdr*)(eth + 1);
  const __u64* source = (const __u64*)&ip->saddr;
  const __u64* destination = (const __u64*)&ip->daddr;
  return source[0] == destination[0] && source[1] == destination[1];
}

// Whether the source is an address of this machine, which the stack takes for forged.
INLINE int isFromThisMachine(const struct ethhdr* eth, const struct Query* query) {
  struct ListenerKey key = {.interface = kLoopback};
  if (query->is_v4) {
    key.address[10] = key.address[11] = 0xff;
    *(__u32*)(key.address + 12) = ((const struct iphdr*)(eth + 1))->saddr;
  } else {
    __builtin_memcpy(key.address, &((const struct ipv6hdr*)(eth + 1))->saddr, sizeof(key.address));
  }
  return bpf_map_lookup_elem(&listeners, &key) != 0;
}

SEC("xdp")
int idetcd_answer(struct xdp_md* ctx) {
  __u8* data = (__u8*)(long)ctx->data;
  __u8* end = (__u8*)(long)ctx->data_end;
  struct ethhdr* eth = (struct ethhdr*)data;
  struct ListenerKey key = {};
  struct Query query = {};
  const struct Listener* listener;
  struct udphdr* udp;
  __u32 size, pseudo;
  if ((__u8*)(eth + 1) > end || (eth->h_dest[0] & 1)) return XDP_PASS;
  const int on_loopback = ctx->ingress_ifindex == kLoopback;
  if (eth->h_proto == bpf_htons(ETH_P_IP)) {
    struct iphdr* ip = (struct iphdr*)(eth + 1);
    udp = (struct udphdr*)(ip + 1);
    if ((__u8*)(udp + 1) > end) return XDP_PASS;
    if (*(__u8*)ip != 0x45 || ip->protocol != IPPROTO_UDP || (ip->frag_off & bpf_htons(0xbfff))) return XDP_PASS;
    size = bpf_ntohs(udp->len);
    if (bpf_ntohs(ip->tot_len) != sizeof(*ip) + size || end - data != sizeof(*eth) + sizeof(*ip) + size)
      return XDP_PASS;
    const __u8 first = *(__u8*)&ip->saddr;
    if (first == 0 || first >= 224) return XDP_PASS;
    key.address[10] = key.address[11] = 0xff;
    if (!on_loopback && first == 127) return XDP_PASS;
    // Broadcast on the loopback interface.
    if (ip->daddr == bpf_htonl(0x7fffffff) || ip->daddr == bpf_htonl(0x7f000000)) return XDP_PASS;
    *(__u32*)(key.address + 12) = ip->daddr;
    query.is_v4 = 1;
    query.dns = sizeof(*eth) + sizeof(*ip) + sizeof(*udp);
  } else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
    struct ipv6hdr* ip = (struct ipv6hdr*)(eth + 1);
    udp = (struct udphdr*)(ip + 1);
    if ((__u8*)(udp + 1) > end) return XDP_PASS;
    if ((*(__u8*)ip >> 4) != 6 || ip->nexthdr != IPPROTO_UDP) return XDP_PASS;
    size = bpf_ntohs(udp->len);
    if (bpf_ntohs(ip->payload_len) != size || end - data != sizeof(*eth) + sizeof(*ip) + size) return XDP_PASS;
    // From neither a multicast address nor one of ::/8, but ::1 on the loopback interface.
    const __u8 first = *(__u8*)&ip->saddr;
    if (first == 0xff || (first == 0 && !on_loopback)) return XDP_PASS;
    if (isReserved(&ip->saddr) || isReserved(&ip->daddr)) return XDP_PASS;
    __builtin_memcpy(key.address, &ip->daddr, sizeof(key.address));
    query.dns = sizeof(*eth) + sizeof(*ip) + sizeof(*udp);
  } else {
    return XDP_PASS;
  }
  // Responses are nothing to answer, and on the loopback interface those of all servers come by.
  if ((__u8*)(udp + 1) + 3 <= end && ((__u8*)(udp + 1))[2] & 0x80) return XDP_PASS;
  key.interface = ctx->ingress_ifindex;
  key.port = udp->dest;
  listener = bpf_map_lookup_elem(&listeners, &key);
  if (!listener && query.is_v4 && key.address[12] == 127) {
    *(__u32*)(key.address + 12) = bpf_htonl(0x7f000000);
    listener = bpf_map_lookup_elem(&listeners, &key);
  }
  if (!listener || udp->source == 0 || udp->dest == 0 || size < sizeof(*udp)) return XDP_PASS;
  if (!isSameHardwareAddress(eth->h_dest, listener->hardware_address)) return XDP_PASS;
  if (!on_loopback && (isFromItself(eth, &query, listener) || isFromThisMachine(eth, &query))) return XDP_PASS;
  if (size > sizeof(*udp) + kHeader + kMaxName + kQuestionTail + kOpt) return pass(kPassMessage);

  const __u16 check = udp->check;
  if (query.is_v4) {
    struct iphdr* ip = (struct iphdr*)(eth + 1);
    __u32 sum = 0;
    const __u16* word = (const __u16*)ip;
    _Pragma("clang loop unroll(full)") for (int i = 0; i < 10; ++i) sum += word[i];
    if (fold(sum) != 0xffff) return pass(kPassChecksum);
    if (check != 0) {
      pseudo = pseudoSum(ip, udp->len);
      if (!isIntact(ctx, &query, listener, check, pseudo, sizeof(*eth) + sizeof(*ip), size)) return pass(kPassChecksum);
    }
  } else {
    if (check == 0) return pass(kPassChecksum);  // RFC 8200 §8.1
    int addresses = sumBytes(ctx, sizeof(*eth) + 8, 2 * sizeof(struct in6_addr));
    if (addresses < 0) return XDP_PASS;
    pseudo = addresses + bpf_htons(size) + bpf_htons(IPPROTO_UDP);
    if (!isIntact(ctx, &query, listener, check, pseudo, sizeof(*eth) + sizeof(struct ipv6hdr), size))
      return pass(kPassChecksum);
  }
  return answerMessage(ctx, &query, listener, size - sizeof(*udp));
}

char kernel_license[] SEC("license") = "Apache-2.0";
