#include "directive/template/go_template.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "directive/template/record_template.h"

namespace idetcd::directive {
namespace {

TemplateData data() {
  return {.zone = "example.org.",
          .name = "ip-10-0-2-7.example.org.",
          .rr_class = "IN",
          .type = "A",
          .remote = "192.0.2.9",
          .match = {"ip-10-0-2-7", "10", "0", "2", "7"},
          .group = {{"0", "ip-10-0-2-7"}, {"a", "10"}, {"hex", "0a"}, {"none", ""}},
          .question = {.name = "IP-10-0-2-7.example.org.", .type = 1, .rr_class = 1}};
}

std::string expanded(const std::string& text) {
  const auto made = GoTemplate::parse(text);
  if (!made) return "refused: " + made.error().message;
  const auto value = made->expand(data());
  return value ? *value : "failed: " + value.error().message;
}

std::string refusal(const std::string& text) {
  const auto made = GoTemplate::parse(text);
  return made ? "" : made.error().message;
}

TEST(GoTemplate, FieldsOfTheQuery) {
  EXPECT_EQ(expanded("{{ .Name }} 60 {{.Class}} {{ .Type }}"), "ip-10-0-2-7.example.org. 60 IN A");
  EXPECT_EQ(expanded("{{ .Zone }} {{ .Remote }}"), "example.org. 192.0.2.9");
  EXPECT_EQ(expanded("{{ .Question.Name }} {{ .Question.Qtype }} {{ .Question.Qclass }}"),
            "IP-10-0-2-7.example.org. 1 1");
  EXPECT_EQ(expanded("{{ .Group.a }}.{{ index .Group \"a\" }}.{{ index .Match 4 }}"), "10.10.7");
  EXPECT_EQ(expanded("plain } text { here }}"), "plain } text { here }}");
}

TEST(GoTemplate, GroupsThatAreMissingAreAsInGo) {
  EXPECT_EQ(expanded("{{ .Group.other }}"), "<no value>");
  EXPECT_EQ(expanded("[{{ index .Group \"other\" }}]"), "[]");
  EXPECT_EQ(expanded("{{ index .Match 9 }}"), "failed: index: 9 is out of range");
}

TEST(GoTemplate, NumbersAndFormats) {
  EXPECT_EQ(expanded("10.{{ parseInt .Group.hex 16 8 }}"), "10.10");
  EXPECT_EQ(expanded("{{ parseInt \"1ff\" 16 8 }}"), "failed: parseInt: '1ff' is no number of 8 bits");
  EXPECT_EQ(expanded("{{ parseInt \"x\" 10 32 }}"), "failed: parseInt: 'x' is no number of 32 bits");
  EXPECT_EQ(expanded("{{ printf \"%03d-%x-%X-%o-%b-%s-%v-%%\" 7 255 255 8 5 .Type true }}"),
            "007-ff-FF-10-101-A-true-%");
  EXPECT_EQ(expanded("{{ printf \"%5s|%-5s|%05d\" \"ab\" \"ab\" -7 }}"), "   ab|ab   |-0007");
  EXPECT_EQ(expanded("{{ .Type | printf \"%s-%s\" .Class }}"), "IN-A");
  EXPECT_EQ(expanded("{{ printf \"%d\" .Type }}"), "failed: printf: %d is not for 'A'");
  EXPECT_EQ(expanded("{{ print 1 2 \"a\" 3 }}"), "1 2a3");
  EXPECT_EQ(expanded("{{ len .Match }} {{ len \"abc\" }} {{ index .Match (len \"ab\") }}"), "5 3 0");
}

TEST(GoTemplate, Conditions) {
  EXPECT_EQ(expanded("{{ if eq .Type \"A\" }}v4{{ else }}v6{{ end }}"), "v4");
  EXPECT_EQ(expanded("{{ if ne .Type \"A\" }}v4{{ else if .Group.none }}x{{ else if gt 2 1 }}y{{ else }}z{{ end }}!"),
            "y!");
  EXPECT_EQ(expanded("{{ if eq .Type \"MX\" \"TXT\" \"A\" }}yes{{ end }}"), "yes");
  EXPECT_EQ(expanded("{{ if and .Type (not .Group.none) }}yes{{ end }}"), "yes");
  EXPECT_EQ(expanded("{{ or .Group.none \"default\" }}"), "default");
  EXPECT_EQ(expanded("{{ if or true (index .Match 99) }}lazy{{ end }}"), "lazy");
  EXPECT_EQ(expanded("{{ if lt \"a\" \"b\" }}{{ if le 2 2 }}{{ if ge 3 2 }}all{{ end }}{{ end }}{{ end }}"), "all");
  EXPECT_EQ(expanded("{{ if eq .Type 1 }}{{ end }}"), "failed: values of different types are compared");
}

TEST(GoTemplate, TrimsAndComments) {
  EXPECT_EQ(expanded("a  {{- .Type -}}  b"), "aAb");
  EXPECT_EQ(expanded("a{{/* }} is not the end? */}}"), "refused: a comment has no end, or is not alone");
  EXPECT_EQ(expanded("a{{/* text */}}b"), "ab");
  EXPECT_EQ(expanded("{{ `raw}}` }}{{ \"q\\\"}}\" }}"), "raw}}q\"}}");
}

TEST(GoTemplate, WhatGoHasBesidesIsRefusedByName) {
  EXPECT_EQ(refusal("{{ range .Match }}{{ end }}"), "'range' is not supported");
  EXPECT_EQ(refusal("{{ with .Name }}{{ end }}"), "'with' is not supported");
  EXPECT_EQ(refusal("{{ html .Name }}"), "'html' is not supported");
  EXPECT_EQ(refusal("{{ $x }}"), "variables ($) are not supported");
  EXPECT_EQ(refusal("{{ .Meta \"x\" }}"), ".Meta needs the directive metadata, which is not supported here");
  EXPECT_EQ(refusal("{{ .Message.Id }}"), ".Message is not supported; there is .Question.Name, .Qtype and .Qclass");
  EXPECT_EQ(refusal("{{ .Nmae }}"), "there is no field '.Nmae'");
}

TEST(GoTemplate, WhatIsNoTemplateIsRefused) {
  for (const char* text : {"{{", "{{ .Name", "{{ }}", "{{ if .Name }}", "{{ end }}", "{{ else }}", "{{ if .Name }}{{ else }}{{ else }}{{ end }}",
                           "{{ .Name .Type }}", "{{ (.Name }}", "{{ .Name ) }}", "{{ index .Match }}", "{{ printf .Name }}",
                           "{{ printf \"%q\" .Name }}", "{{ printf \"%s\" }}", "{{ printf \"%999d\" 1 }}", "{{ 1.5 }}",
                           "{{ \"a }}", "{{ .Name | .Type }}", "{{ 'a' }}", "{{ end x }}"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{{ if true }}";
  EXPECT_EQ(refusal(deep), "too many conditions within each other");
  EXPECT_EQ(refusal("{{ " + std::string(100, '(')), "{{ without }}");
  EXPECT_EQ(refusal("{{ " + std::string(100, '(') + " }}"), "too many parentheses");
}

TEST(GoTemplate, NamesOfGroupsAreKnown) {
  EXPECT_EQ(GoTemplate::parse("{{ .Group.a }}{{ index .Group \"b\" }}{{ index .Match 2 }}{{ .Name }}")->groups(),
            (std::vector<std::string>{"a", "b", "2"}));
  EXPECT_TRUE(GoTemplate::parse("text {{/* c */}}")->isConstant());
  EXPECT_FALSE(GoTemplate::parse("{{ .Name }}")->isConstant());
}

TEST(TemplateRecord, IsReadAsInAZoneFile) {
  const auto record = parseTemplateRecord("www.Example.org 60 IN A 192.0.2.1");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->owner.toString(), "www.example.org.");
  EXPECT_EQ(record->type, 1);
  EXPECT_EQ(record->ttl, 60u);
  EXPECT_EQ(record->rdata, (std::vector<uint8_t>{192, 0, 2, 1}));
  EXPECT_EQ(parseTemplateRecord("a. A 192.0.2.1")->ttl, 3600u) << "as in CoreDNS";
  EXPECT_TRUE(parseTemplateRecord("a. IN 60 SOA ns.a. h.a. (1 60 120 86400 3600)"));
  for (const char* text : {"", "a.", "a. A", "a. 60 IN A 256.1.1.1", "a. CH TXT x", "a. NOTYPE x", "a. ANY x",
                           "a. A 192.0.2.1\nb. A 192.0.2.1", "a..b. A 192.0.2.1", "a. A 192.0.2.1 x"}) {
    EXPECT_FALSE(parseTemplateRecord(text)) << text;
  }
}

TEST(RecordTemplate, AConstantOneIsReadAtOnce) {
  EXPECT_FALSE(RecordTemplate::parse("example.org. 60 IN A 300.1.1.1"));
  EXPECT_TRUE(RecordTemplate::parse("example.org. 60 IN A 192.0.2.1")->expand({}));
  const auto made = RecordTemplate::parse("{{ .Name }} 60 IN A {{ index .Match 1 }}.0.2.7");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->expand(data())->rdata, (std::vector<uint8_t>{10, 0, 2, 7}));
  EXPECT_FALSE(made->expand({.name = "a.", .match = {"", "300"}}));
}

}  // namespace
}  // namespace idetcd::directive
