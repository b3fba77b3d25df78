#include "founding/envelope.h"

#include <gtest/gtest.h>

namespace idetcd::founding {
namespace {

Secret secretOf(std::string_view text) { return Secret::parse(text).value(); }

const Key kKey = secretOf("0123456789abcdef").derive(kMessageLabel);

TEST(Envelope, GivesBackWhatWasSealed) {
  for (const std::string& body : {std::string(), std::string("x"), std::string(5000, '\0')}) {
    const std::string sealed = seal(kKey, 42, body);
    const auto opened = unseal(kKey, sealed);
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->nonce, 42u);
    EXPECT_EQ(opened->body, body);
  }
}

TEST(Envelope, NoBitOfItCanBeChanged) {
  const std::string sealed = seal(kKey, 42, "a message");
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    const auto opened = unseal(kKey, changed);
    ASSERT_FALSE(opened) << "bit " << bit;
    EXPECT_EQ(opened.error(), bit < 32 ? Drop::kMagic : bit < 40 ? Drop::kVersion : Drop::kMac);
  }
}

TEST(Envelope, EachLengthButItsOwnIsRefused) {
  const std::string sealed = seal(kKey, 42, "a message");
  for (size_t size = 0; size < sealed.size(); ++size) EXPECT_FALSE(unseal(kKey, sealed.substr(0, size))) << size;
  EXPECT_FALSE(unseal(kKey, sealed + '\0'));
}

TEST(Envelope, OneOfAnotherSecretOrLabelIsRefused) {
  for (const Key& other :
       {secretOf("0123456789abcdeF").derive(kMessageLabel), secretOf("0123456789abcdef").derive("another label")}) {
    const auto opened = unseal(kKey, seal(other, 42, "a message"));
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error(), Drop::kMac);
  }
}

TEST(Envelope, WhatIsTooLargeIsRefused) {
  const std::string sealed = seal(kKey, 42, std::string(kMaxDatagram, 'x'));
  EXPECT_EQ(unseal(kKey, sealed, kMaxDatagram).error(), Drop::kSize);
  EXPECT_TRUE(unseal(kKey, sealed));
  EXPECT_EQ(unseal(kKey, seal(kKey, 42, std::string(kMaxFrame, 'x'))).error(), Drop::kSize);
}

// RFC 5869 as OpenSSL's command line has it: openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt key:0123456789abcdef
// -kdfopt salt:idetcd -kdfopt info:x HKDF. Machines of different versions have to derive the same.
TEST(Secret, DerivesTheSameKeyEverywhere) {
  std::string hex;
  for (const uint8_t byte : secretOf("0123456789abcdef").derive("x")) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "ad4c185781a39af5868faa93e632a167f5d2e07a0d0be62dea680039b6825777");
}

TEST(Secret, SpaceAroundItDoesNotCount) {
  EXPECT_EQ(secretOf(" 0123456789abcdef\r\n").derive("x"), secretOf("0123456789abcdef").derive("x"));
}

TEST(Secret, IsNoShortOne) {
  for (const char* text : {"", "  \n", "0123456789abcde\n"}) EXPECT_FALSE(Secret::parse(text)) << text;
  EXPECT_EQ(Secret::parse("short").error().message, "the secret has 5 bytes; at least 16 are needed");
}

TEST(Frame, IsWholeOrWaitsForMore) {
  const std::string envelope = seal(kKey, 1, "a message");
  const std::string stream = frame(envelope) + frame(seal(kKey, 2, "the next"));
  for (size_t size = 0; size < envelope.size() + 4; ++size) {
    const auto first = firstFrame(std::string_view(stream).substr(0, size));
    ASSERT_TRUE(first) << size;
    EXPECT_FALSE(first->has_value()) << size;
  }
  const auto first = firstFrame(stream);
  ASSERT_TRUE(first && *first);
  EXPECT_EQ(**first, envelope);
}

TEST(Frame, OneTooLargeOrTooSmallEndsTheStream) {
  EXPECT_EQ(firstFrame(std::string("\0\x10\0\x01", 4)).error(), Drop::kSize);
  EXPECT_EQ(firstFrame(std::string("\0\0\0\x01", 4)).error(), Drop::kSize);
  EXPECT_TRUE(firstFrame(std::string("\0\x10\0\0", 4)));
}

}  // namespace
}  // namespace idetcd::founding
