(* What the main theorems rest on, group by group.  "Closed under the global
   context" means: on nothing.  Those about real numbers use the axioms on which the
   standard library builds them. *)
From iosim Require Import Traffic TrafficBounds CausalTraffic BackwardTraffic.
From iosim Require Import OnlineSoftmax TiledForward FusedBound FusedAttained.
From iosim Require Import UnfusedBound UnfusedWitness UnfusedLargeMemory Optimality.
From iosim Require Import GeneralBound SmallMemory GeneralLargeMemory.
From iosim Require Import BackwardBound BackwardWitness.

Goal True. idtac "== (a) online softmax is a commutative monoid, folded by any tree:". Abort.
Definition theorem_a :=
  (@merge_comm, @merge_assoc, @merge_None_l, @merge_None_r, @direct_app, @tree_is_direct,
   @tree_is_softmax, @direct_Some, @direct_None).
Print Assumptions theorem_a.

Goal True. idtac "== (b) the tiled forward pass is standard attention:". Abort.
Definition theorem_b :=
  (@fa1_forward, @fa2_forward, @skip_masked, @fa1_blocks, @fa2_blocks, @flash1_forward,
   @flash2_forward).
Print Assumptions theorem_b.

Goal True. idtac "== (c) the traffic of flash1 and flash2, closed forms and sandwiches:". Abort.
Definition theorem_c :=
  (@flash1_reads_writes, @flash1_traffic, @flash2_reads_writes, @flash2_traffic,
   @flash1_fits, @flash2_fits, @flash1_printed_tight, @flash1_printed_sandwich,
   @flash1_best_tight, @flash1_best_sandwich, @flash1_best_fits, @flash2_printed_tight,
   @flash2_printed_sandwich, @flash2_best_tight, @flash2_best_sandwich, @flash2_best_fits,
   @flash1_printed_fits, @flash1_printed_too_large).
Print Assumptions theorem_c.

Goal True. idtac "== (d) the fused lower bound and the executions that attain it:". Abort.
Definition theorem_d :=
  (@fused_bound_masked, @fused_bound, @fused_bound_constant_4, @fused_bound_causal,
   @fused_attained, @flash2_attained, @flash2_optimal_fused).
Print Assumptions theorem_d.

Goal True. idtac "== (e) the general lower bound, and its small-memory regime:". Abort.
Definition theorem_e :=
  (@general_bound_masked, @general_bound, @general_bound_constant_1, @loomis_whitney,
   @small_memory_bound).
Print Assumptions theorem_e.

Goal True. idtac "== causal traffic, and the execution that moves it:". Abort.
Definition causal :=
  (@visited_blocks, @first_blocks, @flash2_causal_traffic, @flash2_causal_exact,
   @flash1_causal_traffic, @flash1_causal_exact, @flash2_causal_best_tight,
   @flash2_causal_best_sandwich, @flash2_causal_best_fits, @flash2_causal_attained).
Print Assumptions causal.

Goal True. idtac "== lower bounds without fusion:". Abort.
Definition unfused :=
  (@unfused_bound_masked, @unfused_bound_constant_2, @unfused_attained, @unfused_below_fused,
   @unfused_window_bound, @unfused_bound_large_memory, @general_window_bound,
   @general_bound_large_memory, @flash2_optimal_unfused).
Print Assumptions unfused.

Goal True. idtac "== the backward pass, its traffic and lower bounds:". Abort.
Definition backward_pass :=
  (@flash1_backward_reads, @flash1_backward_writes, @flash1_backward_traffic,
   @flash1_backward_never_fits, @backward_bound_recomputing, @backward_bound_constant_10,
   @backward_bound, @backward_bound_constant_12, @backward_bound_news,
   @backward_bound_constant_14, @backward_attained).
Print Assumptions backward_pass.
