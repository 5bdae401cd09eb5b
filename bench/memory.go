package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// maxBytes is the aim for a set of twelve.
const maxBytes = 250

// benchMemory measures the memory of a set of twelve in several forms.
func (s *suite) benchMemory(ctx context.Context) error {
	const part = "Memory of a set of twelve, with its key"
	user := member.ID(7_654_321)
	var bare *spread
	for i, form := range []struct {
		name string
		set  func(key string) redis.Cmder
		aim  *aim
	}{
		{"the members alone, as a Redis set", func(key string) redis.Cmder { return s.client.SAdd(ctx, key, names()...) }, nil},
		{"activityd: sorted set, scores in seconds", func(key string) redis.Cmder { return s.client.ZAdd(ctx, key, scored(1)...) }, atMost(maxBytes)},
		{"scores in milliseconds", func(key string) redis.Cmder { return s.client.ZAdd(ctx, key, scored(1000)...) }, nil},
		{"scores with fractions", func(key string) redis.Cmder { return s.client.ZAdd(ctx, key, scored(1.000000123)...) }, nil},
	} {
		key := index.UserKey(user)
		if err := s.client.Del(ctx, key).Err(); err != nil {
			return err
		}
		if err := form.set(key).Err(); err != nil {
			return err
		}
		size, err := s.client.MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			return err
		}
		encoding, err := s.client.ObjectEncoding(ctx, key).Result()
		if err != nil {
			return err
		}
		value := spreadOf(float64(size))
		f := figure{Part: part, Name: form.name + " (" + encoding + ")", Unit: "bytes", Value: value, Aim: form.aim, Exact: true}
		if i == 0 {
			bare = value
		}
		s.results.add(f)
		if i > 0 { // a figure of its own, because the aim is one of bytes
			s.results.add(figure{Part: part, Name: f.Name, Against: "the members alone", Ratio: spreadOf(value.Median / bare.Median), Exact: true})
		}
	}
	return s.memoryOfMany(ctx, part)
}

// names are twelve ids of seven digits.
func names() []any {
	list := make([]any, stars)
	for i := range list {
		list[i] = strconv.Itoa(firstMember + 104729*i)
	}
	return list
}

// scored returns them with scores in a given unit.
func scored(unit float64) []redis.Z {
	list := make([]redis.Z, stars)
	for i, name := range names() {
		list[i] = redis.Z{Score: float64(epoch+1009*i) * unit, Member: name}
	}
	return list
}

// memoryOfMany measures by how much the server grows for each set, with the table of
// keys and what the allocator rounds up.
func (s *suite) memoryOfMany(ctx context.Context, part string) error {
	n := min(s.options.sets, 1<<17) // fills the table of keys
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	before, err := usedMemory(ctx, s.client)
	if err != nil {
		return err
	}
	if err := writeSets(ctx, s.client, firstMember, firstMember+member.ID(n)-1); err != nil {
		return err
	}
	after, err := usedMemory(ctx, s.client)
	if err != nil {
		return err
	}
	each := spreadOf((after - before) / float64(n))
	s.results.add(figure{Part: part, Name: fmt.Sprintf("the server's growth for each of %d sets", n), Unit: "bytes", Value: each, Exact: true})
	return s.client.FlushAll(ctx).Err()
}

func usedMemory(ctx context.Context, client *redis.Client) (float64, error) {
	text, err := infoField(ctx, client, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}
