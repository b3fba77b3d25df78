// The hot path allocates nothing: from the bytes of a query to the bytes of its answer.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include <gtest/gtest.h>

#include "dns/response.h"
#include "records/record_store.h"
#include "table_support.h"

// g++ takes free() in a replaced operator delete for a mismatch where it sees both ends inlined.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {
thread_local size_t allocations = 0;  // of this thread, by any form of operator new
}  // namespace

#ifndef IDETCD_SANITIZED
namespace {
void* allocate(size_t size, size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, size == 0 ? 1 : size) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}
}  // namespace

void* operator new(size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace idetcd::records {
namespace {

using test::name;
using test::numbered;

class Allocation : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef IDETCD_SANITIZED
    GTEST_SKIP() << "the sanitizers allocate on their own";
#endif
  }
};

TEST_F(Allocation, TheCounterCounts) {
  const size_t before = allocations;
  ::operator delete(::operator new(1));  // called, not a new-expression: that pair the compiler may leave out
  ::operator delete (::operator new (128, std::align_val_t{64}), std::align_val_t{64});
  EXPECT_EQ(allocations, before + 2);
}

TEST_F(Allocation, AQueryIsAnsweredWithoutAny) {
  EpochDomain epochs;
  RecordStore store(epochs, {.zone = name("tf.local."), .addresses = {IpAddress::v4({10, 0, 0, 1})}, .hash_seed = 7});
  for (size_t i = 0; i < 1000; ++i) store.put(numbered(i), {.ipv4 = IpAddress::v4({10, 0, 0, 2}), .ipv6 = {}}, 1);
  EpochDomain::Reader reader(epochs);

  // worker77.tf.local. IN A, with an OPT; a name that is not there; and what is no query.
  const dns::Name qname = numbered(77);
  uint8_t buffer[1232 + dns::kReadSlack];
  dns::Query query;
  const size_t before = allocations;
  size_t answered = 0;
  for (int round = 0; round < 1000; ++round) {
    std::memset(buffer, 0, dns::kHeaderSize);
    buffer[5] = 1;   // QDCOUNT
    buffer[11] = 1;  // ARCOUNT
    std::memcpy(buffer + dns::kHeaderSize, qname.data(), qname.size());
    size_t size = dns::kHeaderSize + qname.size();
    if (round % 3 == 1) buffer[dns::kHeaderSize + 1] = 'x';
    dns::store16(buffer + size, 1);
    dns::store16(buffer + size + 2, 1);
    size += 4;
    std::memset(buffer + size, 0, dns::kOptSize);
    buffer[size + 2] = round % 3 == 2 ? 0 : 41;
    size += dns::kOptSize;
    if (round % 3 == 2) --size;

    if (dns::parseQuery(buffer, size, store.table().seed(), query) == dns::ParseOutcome::kError) {
      answered += dns::writeErrorResponse(query, 1232) > 0;
      continue;
    }
    const ReadSection section(reader);
    store.table().prefetchBucket(query.hash);
    store.table().prefetchEntry(query.hash);
    const Entry* entry = store.table().find(query.hash, query.name());
    dns::ResponseBuilder response(query, 1232);
    response.setEde(dns::EdeCode::kStaleAnswer);
    if (entry != nullptr) {
      const Entry::Rrset rrset = entry->find(query.qtype);
      response.addAnswer(rrset.wire, rrset.count);
    } else {
      response.addAuthority(store.apex().soa(dns::kHeaderSize + 9, store.serial()).span(), 1);
    }
    answered += response.finish(entry != nullptr ? dns::Rcode::kNoError : dns::Rcode::kNxDomain, dns::kFlagAa) > 0;
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(answered, 1000u);
}

}  // namespace
}  // namespace idetcd::records
