(* Lower bounds for the fused backward pass (new ground beyond theorem (d)).

   With M words of fast memory, and for dv = d in parentheses:

     pairs ((d + dv)(3d + 2 dv))           <= (M - 1) traffic            (10 d^2)
     pairs (2 (d + dv)(2d + dv))           <= (M - 1) traffic            (12 d^2)
     pairs (2 (d + dv)(2d + dv) + d (d + dv)) <= (M - 1) (traffic + news)   (14 d^2)

   The first holds with recomputation; the other two for executions that process no
   pair twice.  news counts the accumulator words made in fast memory.  If each of
   them is made once, news = nq d + nk (d + dv), so the third says
   14 nq nk d^2 / (M - 1) but for the compulsory words; a schedule that makes dq_i
   anew for each block of keys and adds it to slow memory (Add: one word, a reduction)
   is bound by the second only, and attains it (BackwardWitness.v).

   Hypotheses: 0 < d; the execution is valid and complete; every pair is processed
   with q_i, do_i, dq_i, k_j, v_j, dk_j, dv_j all in fast memory.  No range on M.
   Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting MeetingOnce BackwardModel AttentionModel.
Import ListNotations.

Definition all_targets d dv (t : nat * nat) : list (bword * bword) :=
  list_prod (q_in d dv (fst t) ++ q_acc d (fst t)) (k_in d dv (snd t) ++ k_acc d dv (snd t)).
Definition acc_targets d dv (t : nat * nat) : list (bword * bword) :=
  list_prod (q_acc d (fst t)) (k_acc d dv (snd t)).
Definition input_targets d dv (t : nat * nat) : list (bword * bword) :=
  list_prod (q_in d dv (fst t)) (k_in d dv (snd t) ++ k_acc d dv (snd t))
  ++ list_prod (q_acc d (fst t)) (k_in d dv (snd t)).

(* Both sides and the owner of a target. *)
Lemma targets_owner d dv t x y :
  In x (q_in d dv (fst t) ++ q_acc d (fst t)) -> In y (k_in d dv (snd t) ++ k_acc d dv (snd t)) ->
  b_query_side x = true /\ b_query_side y = false /\ b_owner (x, y) = t.
Proof.
  rewrite !in_app_iff. intros Hx Hy.
  assert (b_query_side x = true /\ b_row x = fst t)
    by (destruct Hx as [H | H]; [ apply in_q_in in H | apply in_q_acc in H ]; tauto).
  assert (b_query_side y = false /\ b_row y = snd t)
    by (destruct Hy as [H' | H']; [ apply in_k_in in H' | apply in_k_acc in H' ]; tauto).
  unfold b_owner. cbn. destruct t; cbn in *. intuition congruence.
Qed.

Lemma sides_differ d dv t x y :
  In x (q_in d dv (fst t) ++ q_acc d (fst t)) -> In y (k_in d dv (snd t) ++ k_acc d dv (snd t)) ->
  x <> y.
Proof. intros Hx Hy ->. destruct (targets_owner d dv t y y Hx Hy) as (? & ? & _). congruence. Qed.

Section Bounds.
Variables (d dv : nat) (vis : list (nat * nat)) (M : nat) (es : list (event (backward d dv))).
Hypothesis d_positive : 0 < d.
Hypothesis vis_NoDup : NoDup vis.
Hypothesis es_valid : valid M (init _) es.
Hypothesis es_complete : b_complete d dv vis (run (init _) es).

Lemma lengths t : length (q_in d dv (fst t)) = d + dv /\ length (q_acc d (fst t)) = d /\
  length (k_in d dv (snd t)) = d + dv /\ length (k_acc d dv (snd t)) = d + dv.
Proof. unfold q_in, q_acc, k_in, k_acc. now rewrite !app_length, !words_length. Qed.

Lemma outs_in_needs (t : task (backward d dv)) : incl (outs t) (needs t).
Proof. intros w. cbn. rewrite !in_app_iff. tauto. Qed.

Theorem backward_bound_recomputing :
  length vis * ((d + dv) * (3 * d + 2 * dv)) <= (M - 1) * traffic es.
Proof.
  destruct (meeting M es es_valid) as (L & HL & _ & G).
  apply Nat.le_trans with (length L); [ | exact HL ].
  apply (count_targets b_query_side b_owner (input_targets d dv)); trivial.
  - intros t. unfold input_targets. split.
    + apply NoDup_app; [ apply NoDup_list_prod; [ apply q_in_NoDup | apply k_NoDup ]
                       | apply NoDup_list_prod; [ apply q_acc_NoDup | apply k_in_NoDup ] | ].
      intros [x y] H H'. apply in_prod_iff in H as [H _], H' as [H' _].
      apply in_q_in in H. apply in_q_acc in H'. intuition congruence.
    + rewrite app_length, !prod_length, !app_length.
      destruct (lengths t) as (-> & -> & -> & ->). lia.
  - intros t x y H. apply (targets_owner d dv); unfold input_targets in H;
      rewrite in_app_iff, !in_prod_iff in H; rewrite !in_app_iff in *; tauto.
  - intros t x y Ht H. unfold input_targets in H. rewrite in_app_iff, !in_prod_iff in H.
    assert (Hx : In x (q_in d dv (fst t) ++ q_acc d (fst t))) by (rewrite in_app_iff in *; tauto).
    assert (Hy : In y (k_in d dv (snd t) ++ k_acc d dv (snd t))) by (rewrite in_app_iff in *; tauto).
    (* the accumulator that counts: x or y if it is one, else any of the task *)
    assert (W : exists w, In w (q_acc d (fst t) ++ k_acc d dv (snd t)) /\
                (b_input x = true \/ x = w) /\ (b_input y = true \/ y = w)).
    { rewrite (in_app_iff (k_in _ _ _)) in H. destruct H as [[H1 [H2 | H2]] | [H1 H2]].
      - exists (Bdq (fst t) 0). apply in_q_in in H1. apply in_k_in in H2.
        split; [ | tauto ]. apply in_or_app. left. apply in_words_iff. eauto.
      - exists y. apply in_q_in in H1. split; [ apply in_or_app | ]; tauto.
      - exists x. apply in_k_in in H2. split; [ apply in_or_app | ]; tauto. }
    destruct W as (w & Hw & Ix & Iy).
    apply (G w t); trivial.
    + now apply es_complete.
    + cbn. apply in_or_app. now left.
    + cbn. apply in_or_app. now right.
    + now apply (sides_differ d dv t).
Qed.

(* From here on no pair is processed twice. *)
Hypothesis no_recomputation : NoDup (tasks es).

Lemma vis_done t : In t vis -> In t (tasks es).
Proof.
  intros Ht. assert (Hw : In (Bdq (fst t) 0) (q_acc d (fst t) ++ k_acc d dv (snd t))).
  { apply in_or_app. left. apply in_words_iff. eauto. }
  pose proof (es_complete t _ Ht Hw) as H.
  destruct (content_done es (init _) _ _ (or_intror H)) as [H' | (w & [[] | []])].
  clear - H'. induction es as [| e l IH]; [ contradiction | ].
  destruct H' as [-> | H']; [ now left | ]. destruct e; cbn; auto.
Qed.

Lemma all_targets_count L :
  (forall t x y, In t vis -> In (x, y) (all_targets d dv t) -> met L x y) ->
  length vis * (2 * (d + dv) * (2 * d + dv)) <= length L.
Proof.
  intros H. apply (count_targets b_query_side b_owner (all_targets d dv)); trivial.
  - intros t. unfold all_targets. split; [ apply NoDup_list_prod; [ apply q_NoDup | apply k_NoDup ] | ].
    rewrite prod_length, !app_length. destruct (lengths t) as (-> & -> & -> & ->). lia.
  - intros t x y Hxy. apply in_prod_iff in Hxy as [Hx Hy]. now apply (targets_owner d dv).
Qed.

Theorem backward_bound :
  length vis * (2 * (d + dv) * (2 * d + dv)) <= (M - 1) * traffic es.
Proof.
  destruct (meeting_once outs_in_needs M es es_valid no_recomputation) as (L & HL & G).
  apply Nat.le_trans with (length L); [ | exact HL ].
  apply all_targets_count. intros t x y Ht H. apply in_prod_iff in H as [Hx Hy].
  apply (G t); trivial.
  - now apply vis_done.
  - cbn. apply in_or_app. now left.
  - cbn. apply in_or_app. now right.
  - now apply (sides_differ d dv t).
  - apply in_app_iff in Hx as [Hx | Hx].
    + left. now apply in_q_in in Hx.
    + right. apply es_complete; trivial. apply in_or_app. now left.
  - apply in_app_iff in Hy as [Hy | Hy].
    + left. now apply in_k_in in Hy.
    + right. apply es_complete; trivial. apply in_or_app. now right.
Qed.

Theorem backward_bound_news :
  length vis * (2 * (d + dv) * (2 * d + dv) + d * (d + dv)) <= (M - 1) * (traffic es + news es).
Proof.
  destruct (meeting_all M es es_valid) as (L1 & H1 & G1).
  destruct (meeting_second outs_in_needs M es es_valid no_recomputation) as (L2 & H2 & G2).
  assert (C1 : length vis * (2 * (d + dv) * (2 * d + dv)) <= length L1).
  { apply all_targets_count. intros t x y Ht H. apply in_prod_iff in H as [Hx Hy].
    apply (G1 t).
    - now apply vis_done.
    - cbn. apply in_or_app. now left.
    - cbn. apply in_or_app. now right.
    - now apply (sides_differ d dv t). }
  assert (C2 : length vis * (d * (d + dv)) <= length L2).
  { apply (count_targets b_query_side b_owner (acc_targets d dv)); trivial.
    - intros t. unfold acc_targets. split.
      + apply NoDup_list_prod; [ apply q_acc_NoDup | apply k_acc_NoDup ].
      + rewrite prod_length. destruct (lengths t) as (_ & -> & _ & ->). reflexivity.
    - intros t x y H. apply in_prod_iff in H as [Hx Hy].
      apply (targets_owner d dv); apply in_or_app; now right.
    - intros t x y Ht H. apply in_prod_iff in H as [Hx Hy].
      apply (G2 t).
      + now apply vis_done.
      + cbn. rewrite !in_app_iff. tauto.
      + cbn. rewrite !in_app_iff. tauto.
      + apply (sides_differ d dv t); apply in_or_app; now right.
      + now apply in_q_acc in Hx.
      + now apply in_k_acc in Hy.
      + apply es_complete; trivial. apply in_or_app. now left.
      + apply es_complete; trivial. apply in_or_app. now right. }
  rewrite traffic_loads_stores.
  assert ((M - 1) * (loads es + stores es + news es)
          = (M - 1) * (loads es + news es) + (M - 1) * stores es) as -> by lia.
  lia.
Qed.
End Bounds.

(* dv = d, no mask *)
Corollary backward_bound_constant_12 d nq nk M (es : list (event (backward d d))) :
  0 < d -> valid M (init _) es -> b_complete d d (all_pairs nq nk) (run (init _) es) ->
  NoDup (tasks es) ->
  12 * nq * nk * d * d <= (M - 1) * traffic es.
Proof.
  intros Hd V C N.
  pose proof (backward_bound d d _ M es Hd (all_pairs_NoDup nq nk) V C N) as H.
  rewrite all_pairs_length in H. lia.
Qed.

Corollary backward_bound_constant_14 d nq nk M (es : list (event (backward d d))) :
  0 < d -> valid M (init _) es -> b_complete d d (all_pairs nq nk) (run (init _) es) ->
  NoDup (tasks es) -> news es <= nq * d + 2 * nk * d ->
  14 * nq * nk * d * d <= (M - 1) * (traffic es + nq * d + 2 * nk * d).
Proof.
  intros Hd V C N Hn.
  pose proof (backward_bound_news d d _ M es Hd (all_pairs_NoDup nq nk) V C N) as H.
  rewrite all_pairs_length in H.
  assert ((M - 1) * (traffic es + news es) <= (M - 1) * (traffic es + nq * d + 2 * nk * d))
    by (apply Nat.mul_le_mono_l; lia). lia.
Qed.

Corollary backward_bound_constant_10 d nq nk M (es : list (event (backward d d))) :
  0 < d -> valid M (init _) es -> b_complete d d (all_pairs nq nk) (run (init _) es) ->
  10 * nq * nk * d * d <= (M - 1) * traffic es.
Proof.
  intros Hd V C.
  pose proof (backward_bound_recomputing d d _ M es Hd (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H. lia.
Qed.
