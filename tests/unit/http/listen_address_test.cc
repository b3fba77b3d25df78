#include "http/endpoints.h"

#include <string>

#include <gtest/gtest.h>

namespace idetcd::http {
namespace {

std::string partsOf(std::string_view text) {
  const auto address = parseListenAddress(text);
  return address ? address->host + "|" + address->port : "refused: " + address.error().message;
}

bool isRefused(std::string_view text) { return !parseListenAddress(text); }

TEST(ListenAddress, IsHostAndPort) {
  EXPECT_EQ(partsOf(":8080"), "|8080");
  EXPECT_EQ(partsOf("localhost:1234"), "localhost|1234");
  EXPECT_EQ(partsOf("169.254.20.10:8080"), "169.254.20.10|8080");
  EXPECT_EQ(partsOf("[::1]:8080"), "::1|8080");
  EXPECT_EQ(partsOf("[fe80::1%eth0]:http"), "fe80::1%eth0|http");
  EXPECT_EQ(parseListenAddress("[::1]:8080")->toString(), "[::1]:8080");
}

TEST(ListenAddress, WhatGoRefusesIsRefused) {
  EXPECT_TRUE(isRefused("bla"));
  EXPECT_TRUE(isRefused(""));
  EXPECT_TRUE(isRefused("::1:8080"));
  EXPECT_TRUE(isRefused("[::1]"));
  EXPECT_TRUE(isRefused("[::1:8080"));
  EXPECT_TRUE(isRefused("::1]:8080"));
  EXPECT_TRUE(isRefused("[::1]x:8080"));
}

TEST(ListenAddress, IsResolvedWhereItIsListenedOn) {
  EXPECT_EQ(resolve({.host = "127.0.0.2", .port = "8080"})->front().toString(), "127.0.0.2:8080");
  EXPECT_EQ(resolve({.host = "::1", .port = "8080"})->front().toString(), "[::1]:8080");
  const auto local = resolve({.host = "localhost", .port = "1234"});
  ASSERT_EQ(local->size(), 1U);
  EXPECT_TRUE(local->front().ip.isLoopback());
  const auto everywhere = resolve({.host = "", .port = "8080"});
  for (const SocketAddress& any : *everywhere) EXPECT_EQ(any.toString(), any.ip.isV4() ? "0.0.0.0:8080" : "[::]:8080");
  EXPECT_FALSE(resolve({.host = "127.0.0.1", .port = "a"})) << "no such service";
}

}  // namespace
}  // namespace idetcd::http
