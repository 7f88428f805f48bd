// SPDX-License-Identifier: MIT

package simulate

import "container/heap"

// agenda is what happens later. It is a heap, whose root happens first.
type agenda []event

// event is something that happens at a moment, in microseconds since the Unix epoch.
type event struct {
	at int64
	do func()
}

func (a *agenda) add(at int64, do func()) { heap.Push(a, event{at, do}) }
func (a *agenda) pop() event              { return heap.Pop(a).(event) }

// due reports whether something happens up to a moment.
func (a agenda) due(at int64) bool { return len(a) > 0 && a[0].at <= at }

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(event)) }

func (a *agenda) Pop() any {
	n := len(*a) - 1
	last := (*a)[n]
	(*a)[n], *a = event{}, (*a)[:n] // so that it is not kept in memory
	return last
}
