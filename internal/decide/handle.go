// SPDX-License-Identifier: MIT

package decide

// Handle refers to an Evaluation until Done. The zero value refers to none.
type Handle struct {
	e   *Evaluation
	use uint64
}

// Evaluation returns the evaluation, or nil after Done.
func (h *Handle) Evaluation() *Evaluation {
	if h.e == nil || h.e.use.Load() != h.use {
		return nil
	}
	return h.e
}

// Done releases the slots that the request holds. Later calls do nothing, those of copies of h too.
func (h *Handle) Done() {
	if e := h.e; e != nil && e.use.CompareAndSwap(h.use, h.use+1) {
		e.end()
	}
	h.e = nil
}

// SetStatus refunds the request under rules that do not count that status of its response, and calls Answered. The status 0
// means that there is no response, and refunds nothing.
func (h *Handle) SetStatus(status int) {
	if status == 0 {
		h.Answered(noResponse)
		return
	}
	h.Answered(status)
	if e := h.Evaluation(); e != nil && e.refundable {
		e.refundable, e.status = false, status
		e.refund(status)
	}
}
