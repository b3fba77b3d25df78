// Messages that dnspython has signed, and what this server signs itself.
#include "tsig/signature.h"

#include <gtest/gtest.h>

namespace idetcd::tsig {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kTime = 1700000000;

Key key(std::string_view secret = "0123456789abcdef0123456789abcdef", Algorithm algorithm = Algorithm::kSha256) {
  return {dns::Name::parse("key.example.").value(), algorithm, Bytes(secret.begin(), secret.end())};
}

Keyring ring(Key of = key()) {
  Keyring keys;
  EXPECT_TRUE(keys.add(std::move(of)));
  return keys;
}

Bytes fromHex(std::string_view text) {
  const auto digit = [](char c) { return static_cast<uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes.push_back(static_cast<uint8_t>(digit(text[i]) << 4 | digit(text[i + 1])));
  return bytes;
}

constexpr std::string_view kTail = "00fa00ff00000000003d0b686d61632d7368613235360000006553f100012c0020";

Bytes signedBytes(std::string_view head, std::string_view mac) {
  return fromHex(std::string(head) + std::string(kTail) + std::string(mac) + "123400000000");
}

// A query for the SOA of example., its answer, and three messages of a transfer, the second one unsigned.
const Bytes kQuery = signedBytes("123400000001000000000001076578616d706c650000060001036b6579c00c",
                                 "5001a37a52dc8eb06c6f455f3e6765186454a4051815b83f1bed80d53a53a24f");
const Bytes kAnswer = signedBytes("123480000001000000000001076578616d706c650000060001036b6579c00c",
                                  "0e3b652f95c043f7d3e1d4d863f2cc2d3faca2f6e61b8b7984ba159ad302f175");
const Bytes kFirst =
    signedBytes("123480000001000100000001076578616d706c650000060001c00c00100001000000010003026d31036b6579c00c",
                "10701dc14b3a77f69abad2268cd0666fcf6defdc01d37954c20bacbd587b3ea3");
const Bytes kSecond =
    fromHex("123480000001000100000000076578616d706c650000060001c00c00100001000000010003026d32");
const Bytes kThird =
    signedBytes("123480000001000100000001076578616d706c650000060001c00c00100001000000010003026d33036b6579c00c",
                "217e94edc6185f844c201cb51284881a1ce2a96c05f08381096edfb67e059ef5");

Bytes macOf(const Bytes& message) { return readRecord(message, findRecord(message)).value().mac; }

QueryCheck check(const Bytes& query, const Keyring& keys = ring(), uint64_t now = kTime) {
  return checkQuery(query, findRecord(query), keys, now);
}

// `size` bytes of `bytes`, in a buffer with room for a record.
struct Unsigned {
  explicit Unsigned(size_t message_size = 25) : size(message_size) {
    bytes.resize(2048);
    std::ranges::copy(std::span(kQuery).first(size), bytes.begin());
    dns::store16(&bytes[10], 0);
  }
  Bytes sign(Signer& signer, uint64_t now = kTime) {
    size = signer.sign(bytes, size, now);
    return {bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)};
  }
  Bytes bytes;
  size_t size;
};

TEST(Signature, AQueryIsGood) {
  const QueryCheck good = check(kQuery);
  EXPECT_EQ(good.kind, QueryCheck::Kind::kGood);
  EXPECT_EQ(good.record.signed_at, kTime);
  EXPECT_EQ(good.record.mac.size(), 32u);
  EXPECT_EQ(check(kQuery, ring(), kTime + 300).kind, QueryCheck::Kind::kGood);
  EXPECT_EQ(check(kQuery, ring(), kTime - 300).kind, QueryCheck::Kind::kGood);
}

TEST(Signature, WhatIsWrongWithAQueryHasAnErrorEach) {
  EXPECT_EQ(check(kQuery, Keyring()).error, TsigError::kBadKey);
  EXPECT_EQ(check(kQuery, ring(key("x", Algorithm::kSha512))).error, TsigError::kBadKey);
  EXPECT_EQ(check(kQuery, ring(key("another"))).error, TsigError::kBadSig);
  EXPECT_EQ(check(kQuery, ring(), kTime + 301).error, TsigError::kBadTime);
  EXPECT_EQ(check(kQuery, ring(), kTime - 301).error, TsigError::kBadTime);
  Bytes changed = kQuery;
  changed[22] ^= 1;  // of the type
  EXPECT_EQ(check(changed).error, TsigError::kBadSig);
}

TEST(Signature, EveryCutOfAMacIsRefused) {
  const size_t record = findRecord(kQuery);
  const size_t fixed = record + 6;
  const size_t mac_size = fixed + 10 + 13 + 8;
  for (size_t size = 0; size < 32; ++size) {
    Bytes cut = kQuery;
    cut.erase(cut.begin() + static_cast<ptrdiff_t>(mac_size + 2 + size), cut.begin() + static_cast<ptrdiff_t>(mac_size + 2 + 32));
    dns::store16(&cut[fixed + 8], static_cast<uint16_t>(0x3d - 32 + size));
    dns::store16(&cut[mac_size], static_cast<uint16_t>(size));
    const QueryCheck cut_check = check(cut);
    if (size < 16) {
      EXPECT_EQ(cut_check.kind, QueryCheck::Kind::kMalformed) << size;
    } else {
      EXPECT_EQ(cut_check.error, TsigError::kBadTrunc) << size;
    }
  }
}

TEST(Signature, EveryPrefixOfAMessageIsSurvived) {
  for (size_t size = 0; size < kQuery.size(); ++size) {
    const Bytes prefix(kQuery.begin(), kQuery.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_EQ(findRecord(prefix), 0u);
    for (size_t offset = 0; offset <= size; ++offset) EXPECT_FALSE(readRecord(prefix, offset));
  }
}

TEST(Signature, AnAnswerIsVerified) {
  Verifier verifier(key(), macOf(kQuery));
  EXPECT_TRUE(verifier.verify(kAnswer, findRecord(kAnswer), kTime));
  EXPECT_TRUE(verifier.isSigned());
  EXPECT_FALSE(Verifier(key("another"), macOf(kQuery)).verify(kAnswer, findRecord(kAnswer), kTime));
  EXPECT_FALSE(Verifier(key(), macOf(kAnswer)).verify(kAnswer, findRecord(kAnswer), kTime)) << "to another query";
  EXPECT_FALSE(Verifier(key(), macOf(kQuery)).verify(kAnswer, findRecord(kAnswer), kTime + 301));
  EXPECT_FALSE(Verifier(key(), macOf(kQuery)).verify(kSecond, 0, kTime)) << "not signed";
}

TEST(Signature, MessagesOfATransferMayBeUnsignedInBetween) {
  Verifier verifier(key(), macOf(kQuery));
  EXPECT_TRUE(verifier.verify(kFirst, findRecord(kFirst), kTime));
  EXPECT_TRUE(verifier.verify(kSecond, 0, kTime));
  EXPECT_FALSE(verifier.isSigned());
  EXPECT_TRUE(verifier.verify(kThird, findRecord(kThird), kTime));
  EXPECT_TRUE(verifier.isSigned());

  Verifier without(key(), macOf(kQuery));
  EXPECT_TRUE(without.verify(kFirst, findRecord(kFirst), kTime));
  EXPECT_FALSE(without.verify(kThird, findRecord(kThird), kTime)) << "one is missing";

  Verifier long_one(key(), macOf(kQuery));
  EXPECT_TRUE(long_one.verify(kFirst, findRecord(kFirst), kTime));
  for (size_t i = 0; i < Verifier::kMaxUnsigned; ++i) EXPECT_TRUE(long_one.verify(kSecond, 0, kTime));
  EXPECT_FALSE(long_one.verify(kSecond, 0, kTime));
}

TEST(Signature, WhatIsSignedHereIsAsOthersSignIt) {
  Unsigned query;
  Signer asker(key());
  const Bytes made = query.sign(asker);
  EXPECT_EQ(macOf(made), macOf(kQuery));
  EXPECT_EQ(made.size() - 25, Signer::recordSize(key()));
  for (const auto algorithm : {Algorithm::kSha1, Algorithm::kSha224, Algorithm::kSha384, Algorithm::kSha512}) {
    Unsigned other;
    Signer signer(key("secret", algorithm));
    const Bytes bytes = other.sign(signer);
    EXPECT_EQ(check(bytes, ring(key("secret", algorithm))).kind, QueryCheck::Kind::kGood);
    EXPECT_EQ(bytes.size() - 25, Signer::recordSize(key("secret", algorithm)));
  }
}

TEST(Signature, AStreamThatIsSignedHereIsVerified) {
  Signer signer(key(), macOf(kQuery));
  Verifier verifier(key(), macOf(kQuery));
  for (int i = 0; i < 3; ++i) {
    Unsigned message;
    const Bytes bytes = message.sign(signer);
    EXPECT_TRUE(verifier.verify(bytes, findRecord(bytes), kTime)) << i;
  }
}

TEST(Signature, BadTimeSaysWhatTimeItIs) {
  const QueryCheck late = check(kQuery, ring(), kTime + 1000);
  Unsigned response;
  Signer signer(key(), late.record.mac);
  const size_t size = signer.signError(response.bytes, response.size, late.error, late.record, kTime + 1000);
  const auto record = readRecord(std::span(response.bytes).first(size), 25).value();
  EXPECT_EQ(record.error, 18);
  EXPECT_EQ(record.signed_at, kTime);
  EXPECT_EQ(record.other, (Bytes{0, 0, 0x65, 0x53, 0xf4, 0xe8}));
}

TEST(Key, Algorithms) {
  EXPECT_EQ(parseAlgorithm("HMAC-SHA256."), Algorithm::kSha256);
  EXPECT_EQ(parseAlgorithm("hmac-sha512"), Algorithm::kSha512);
  EXPECT_EQ(parseAlgorithm("hmac-md5"), std::nullopt);
  Keyring keys = ring();
  EXPECT_FALSE(keys.add(key("other"))) << "of the same name";
}

}  // namespace
}  // namespace idetcd::tsig
