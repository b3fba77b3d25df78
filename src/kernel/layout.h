// The program in the kernel (answer.bpf.c) and the process that feeds it share this: the maps' keys and values. Plain C,
// included by both. Increase kLayout with every change here: a process does not use maps of another layout.
//
// Little-endian machines only. Numbers are in the machine's byte order where nothing else is said; what goes into a packet
// as it is, is in network byte order. Names are in wire form and lower case.
#pragma once

#include <linux/types.h>

#ifdef __cplusplus
namespace idetcd::kernel {
#endif

enum {
  kLayout = 5,
  kZones = 16,         // clusters
  kListenerZones = 4,  // of one listening address
  kZoneEndpoints = 4,
  kListeners = 4096,    // addresses with a port, and without
  kMeters = 64,         // listening addresses times zones, as they are counted
  kPointerLabels = 24,  // bytes that the name of a PTR record of the kernel's has before the zone's, at most
  kZoneName = 64,       // bytes of the longest zone's name; a power of two
  kSoaSize = 54,        // of every zone whose name leaves room for the names in it
  kLoopback = 1,        // index of the loopback interface, in each network namespace
  kBeingCleared = 2,    // Zone::identity of a place that may have names of before
  kMinNames = 64,       // of an operator's limit
  kDefaultNames = 65536,
};

// Map `settings`: one value. Written once, by the process that makes the maps; `generation` changes later.
struct Settings {
  __u64 seed[2];  // of the hashes of names; secret
  __u32 layout;
  __u32 max_names;
  __u32 generation;  // one more with each process that feeds the maps: names of an earlier one are taken out in the end
  __u32 network;     // namespace of the links: its inode
};

// Map `listeners`: where the process listens, and by which interface such a query comes in: by the one that has the
// address, or, from this machine, by the loopback interface. By another one it may be a VLAN's, whose tag the device has
// taken off, and is left to the stack. An IPv4 address is ::ffff:a.b.c.d; 127.0.0.0 stands for those of 127/8 that have
// no value of their own. With port 0 and the loopback interface: an address of this machine, listened at or not.
struct ListenerKey {
  __u8 address[16];
  __u32 interface;  // index
  __u16 port;       // network byte order
  __u16 unused;
};

enum {             // ListenerZone::flags
  kRecursion = 1,  // the block sets RA
  kWhole = 2,      // what the zone does not have does not exist: no `fallthrough`, no other source of its names
  kHeldOnly = 4,   // names that no source holds are searched elsewhere first
};

struct ListenerZone {
  __u8 zone;  // index in `zones`
  __u8 flags;
  __u16 meter;  // index in `meters`
};

struct Listener {
  struct ListenerZone zones[kListenerZones];  // the longest zone first
  struct ListenerZone reverse;                // which zone answers PTR
  __u8 zone_count;
  __u8 has_reverse;
  // The interface's. Other destinations (a bridge, a mirror port) are not for this machine. 0 on loopback.
  __u8 hardware_address[6];
  __u8 is_behind_driver;  // the program runs in generic mode there
  __u8 prefix_length;     // bits of the subnet of the IPv4 address on the interface; 32 where there is none
  __u8 unused[2];
};

// Map `zones`: an array that the process has mapped. Fields of eight bytes or less are read and written whole.
struct Zone {
  __u64 fresh_until;  // nanoseconds of CLOCK_BOOTTIME; 0: nothing is answered
  __u32 serial;       // of the SOA
  __u32 is_whole;     // every name that the zone has is in the map
  // Of the names it has: a process continues with a zone of the same identity only. Odd; 0: the place is free.
  __u64 identity;
  __u32 pointer_ttl;     // of PTR records; network byte order
  __u16 name_size;       // bytes; 0: nothing is answered
  __u8 soa[kSoaSize];    // the record; pointers to the zone's name, and the serial, are filled in
  __u8 name[kZoneName];  // in wire form
  // Sequence counter: odd during a write. If it is odd or has changed, a failed look-up proves nothing: a hash map of the
  // kernel's replaces an element by a new one, and a look-up can miss both.
  __u32 changes;
  // Hashes of the store's endpoints. A process continues with a zone only if it shares one of them.
  __u32 endpoints[kZoneEndpoints];
};

// Key of `names` and `pointers`: the hash of a name up to its zone, and of the zone's index.
struct NameKey {
  __u64 hash[2];
};

enum {  // Name::flags
  kHasA = 1,
  kHasAaaa = 2,
  kHeld = 4,       // a source holds a record for it
  kElsewhere = 8,  // it exists, but the process has to answer
  kHasText = 16,   // the process has to answer for TXT
};

struct Name {
  __u8 ipv6[16];
  __u8 ipv4[4];
  __u32 ttl;         // seconds, network byte order
  __u16 generation;  // low half
  __u8 zone;
  __u8 flags;
  __u32 check;  // of all that is before it and the key: a value that is being replaced may be read half
};

struct Pointer {
  __u8 labels[kPointerLabels];  // of a name below the zone, whose name is behind them
  __u16 generation;
  __u8 zone;
  __u8 labels_size;  // bytes
  __u32 check;
};

enum {  // families of addresses, as indices
  kFamilies = 2,
  // As in resolve::QueryMeter::kTypes.
  kTypes = 19,
  kTypeA = 0,
  kTypeAaaa = 1,
  kTypeMx = 2,
  kTypeSoa = 3,
  kTypeCname = 4,
  kTypePtr = 5,
  kTypeTxt = 6,
  kTypeNs = 7,
  kTypeSrv = 8,
  kTypeDs = 9,
  kTypeDnskey = 10,
  kTypeRrsig = 11,
  kTypeNsec = 12,
  kTypeNsec3 = 13,
  kTypeHttps = 14,
  kTypeOther = 18,
  kRcodes = 2,       // NOERROR, NXDOMAIN
  kSizeBuckets = 5,  // bytes: 1 to 100, to 200, to 300, to 400, to 511
};

// Map `meters`: a value for each processor.
struct Meter {
  __u64 answered[kFamilies][kTypes][kRcodes];
  __u64 with_do;
  __u64 request_bytes;
  __u64 response_bytes;
  __u64 request_sizes[kSizeBuckets];
  __u64 response_sizes[kSizeBuckets];
};

// Why a query to an address of the process is left to it. Map `passed`: a number for each processor.
enum PassReason {
  kPassChecksum = 0,  // it is damaged
  kPassMessage,       // not one question of a plain query, or its name cannot be read
  kPassEdns,          // options, another version, or another record than OPT
  kPassType,          // a class or type that the process answers itself
  kPassZone,          // a name of no zone here
  kPassName,          // not in the map, and the zone need not be whole; or one whose full answer only the process has
  kPassExpired,       // the zone is not known to be up to date
  kPassChanging,      // the name was being changed
  kPassRoom,          // the driver has no room for the answer
  kPassReasons,
};

// The hash of names. One step takes one byte; the first is the zone's index, after the seed.
static inline __attribute__((always_inline)) void hashStep(__u64 hash[2], __u8 byte) {
  hash[0] = (hash[0] ^ byte) * 0x9e3779b97f4a7c15ULL;
  hash[0] ^= hash[0] >> 32;
  hash[1] = (hash[1] + byte) * 0xc2b2ae3d27d4eb4fULL;
  hash[1] ^= hash[1] >> 29;
}

static inline __attribute__((always_inline)) void hashBegin(__u64 hash[2], const __u64 seed[2], __u8 zone) {
  hash[0] = seed[0];
  hash[1] = seed[1];
  // As a byte of its own: mixed into the first byte of the name, it would make names of two zones the same.
  hashStep(hash, zone);
}

// Of a value: its first `count` words of eight bytes and the four bytes behind them, and the key that it belongs to.
static inline __attribute__((always_inline)) __u32 checkOf(const __u64 key[2], const __u64* words, __u32 count) {
  __u64 sum = key[0] ^ (key[1] << 1) ^ (words[count] & 0xffffffff);
  for (__u32 i = 0; i < count; ++i) {
    sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15ULL;
    sum ^= sum >> 32;
  }
  return (sum >> 16) & 0xffffffff;
}
enum { kNameWords = 3, kPointerWords = 3 };

#ifdef __cplusplus
static_assert(sizeof(Settings) == 32 && sizeof(ListenerKey) == 24 && sizeof(Listener) == 32 && sizeof(Zone) == 168);
static_assert(sizeof(Name) == 32 && sizeof(Pointer) == 32);
}  // namespace idetcd::kernel
#endif
