// Every name as last known, in a file, so that a node that starts while etcd is away can answer from it.
//
//   bytes   8  "idetcdN2", or "idetcdN1" without what members say of themselves
//            8  size of the pattern, then the pattern as it is configured
//            8  when it was written, in seconds since 1970
//   then for each name
//            1  size of the name, 1..255
//            1  1: has an IPv4 address, 2: has an IPv6 address, 4: is a member's
//            8  mod_revision of its key
//            …  the name, in wire form; then 4 and 16 bytes of addresses; 2 bytes of size, and records::memberData()
//   then     1  0
//            8  number of names
//            8  XXH3-64 of all before
//
// Numbers are in the order of the machine: the file never leaves it. A file that is cut off, damaged, of another
// pattern or too large is refused as a whole. Blocking; any thread.
#pragma once

#include "base/result.h"
#include "dns/name.h"
#include "records/record_store.h"

namespace idetcd::naming {

struct SavedName {
  dns::Name name;
  records::HostAddresses addresses;
  std::vector<uint8_t> member;  // records::memberData(); may be empty
  int64_t mod_revision = 0;
};

// Every name from etcd as it is at some time meanwhile, now and then twice, while the store goes on changing. A reader
// of the table, in short sections.
void forEachName(const records::RecordStore& store, const std::function<void(const SavedName&)>& take);

// Writes what the store's table shows while it goes on changing: each name as it was at some time meanwhile. A reader
// of the table, in sections that are over before the disk is waited for; memory is bounded. `abandoned` is asked now
// and then: true ends it with an error, the file unchanged. `written_at_seconds`: the time now, since 1970. Returns the
// number of names.
Result<size_t> saveNames(const std::string& path, std::string_view pattern, const records::RecordStore& store,
                         int64_t written_at_seconds, const std::function<bool()>& abandoned);

struct LoadedNames {
  size_t count = 0;
  int64_t written_at_seconds = 0;  // since 1970
};

// Hands over each name once the whole file has proved sound. None: there is no file.
Result<std::optional<LoadedNames>> loadNames(const std::string& path, std::string_view pattern,
                                             const std::function<void(const SavedName&)>& take);

}  // namespace idetcd::naming
