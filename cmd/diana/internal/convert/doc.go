// SPDX-License-Identifier: MIT

// Package convert writes the limits of other programs as rules of Diana.
//
// A printed rule never refuses a request that the other program allows, but for what the page of that program in
// docs/gateways lists. A rule that would counts in shadow mode, until somebody has read the remark beside it. A
// rule that allows more has a remark too, and so has a limit without a rule.
package convert
