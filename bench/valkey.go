// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/diana-limiter/diana/internal/redistest"
)

// The group valkey measures Diana with Valkey beside Redis. The servers take turns, and Diana's part is
// the same for both.

const (
	valkeyProgram = "valkey-server"

	onRedis  = dianaStore + " on Redis"
	onValkey = dianaStore + " on Valkey"
)

// valkeyName makes the name of a workload, because names are unique among all groups.
func valkeyName(workload string) string { return workload + ", Valkey beside Redis" }

func valkeyLoads() (loads []globalLoad) {
	for _, l := range globalLoads(million) {
		if l.name == globalName(uniformWorkload, 32) {
			l.name, l.callers = globalName(uniformWorkload, 1), 1
		} else if l.name != globalName(hotWorkload, 256) && l.name != globalName(uniformWorkload, 256) {
			continue
		}
		l.name = valkeyName(l.name)
		loads = append(loads, l)
	}
	return loads
}

func valkeyGroup() group {
	return group{
		name: "valkey", measure: measureValkey,
		figures: []figure{decisionRate, p50, p99, redisTime, failures},
	}
}

// valkeyLines belong to the table of the group global.
func valkeyLines() []line {
	many, lone := valkeyName(globalName(uniformWorkload, 256)), valkeyName(globalName(uniformWorkload, 1))
	return []line{
		compare("1 M keys with Valkey: decisions/s", many, decisionRate, onValkey, onRedis),
		compare("1 M keys with Valkey, 1 caller: p50", lone, p50, onValkey, onRedis),
	}
}

// enginePlace is a server and the Diana that uses it.
type enginePlace struct {
	server *redistest.Server
	diana  *globalSystem
}

func measureValkey(ctx context.Context, r *run) error {
	if _, err := exec.LookPath(valkeyProgram); err != nil {
		r.note("  %s is missing", valkeyProgram)
		return nil
	}
	var places []enginePlace
	for _, engine := range []struct{ program, name string }{{valkeyProgram, onValkey}, {"", onRedis}} {
		server, stop, err := startServer(engine.program)
		if err != nil {
			return err
		}
		defer stop()
		system, err := openRedisstore(ctx, server)
		if err != nil {
			return err
		}
		defer system.close()
		system.name = engine.name
		places = append(places, enginePlace{server, system})
	}
	err := caught(func() { r.origin.Machine.Valkey = places[0].server.Info("server")["valkey_version"] })
	if err != nil {
		return err
	}
	once := r.atMost(1)
	once.notes = io.Discard // measure would name the workload again and again
	for _, l := range valkeyLoads() {
		if r.quick && l.callers == 1 && !r.tiny {
			continue
		}
		r.note("  %s", l.name)
		err := r.interleave(ctx, len(places), func(_, i int) error {
			return l.measure(ctx, once, places[i].server, []*globalSystem{places[i].diana})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}
