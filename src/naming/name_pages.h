// Reads the names in etcd page by page, and as little as possible of what else lies between them.
//
// No name has a '/', so everything below "other/" belongs to other programs, however much that is: a page that ends
// inside goes on behind it, at "other0", the first key that does not begin with "other/" ('0' follows '/'). For the
// same reason the first page is small: what is behind it is known only when it has been read. Scheduler's thread only.
#pragma once

#include "runtime/task.h"
#include "store/store.h"

namespace idetcd::naming {

// Every key in order, a page at a time; `page` returns false to stop. `page_size`: in keys; 0: by what the pages before
// have shown, 64 MiB at most. Returns the revision of the first page. Where that is compacted away meanwhile, the pages
// that follow are of a newer one: a watch that was begun at the first shows what lies between. Otherwise it ends like
// store::rangePaginated(), which says what the errors mean.
runtime::Task<store::StoreResult<int64_t>> readNamePages(store::Source& source, std::vector<store::KeyRange> ranges,
                                                         store::RangeOptions options, int64_t page_size,
                                                         std::function<bool(std::vector<store::KeyValue>&&)> page);

// The path of another program, and no name.
inline bool isPath(std::string_view key) { return key.find('/') != std::string_view::npos; }
// The first key behind everything below the first '/' of `key`. REQUIRES: isPath(key).
inline std::string behindPath(std::string_view key) {
  assert(isPath(key));
  return std::string(key.substr(0, key.find('/'))) + '0';
}

}  // namespace idetcd::naming
